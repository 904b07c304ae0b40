# `cmake --install` and what find_package(flashoverlap) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flashoverlap)

install(TARGETS flashoverlap EXPORT flashoverlapTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/flashoverlap DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT flashoverlapTargets NAMESPACE flashoverlap:: DESTINATION ${package_dir})
if(FLASHOVERLAP_NCCL)
  # Exported by itself, so that the rest can be used where there is no CUDA.
  install(TARGETS flashoverlap_cuda EXPORT flashoverlapCudaTargets)
  install(EXPORT flashoverlapCudaTargets NAMESPACE flashoverlap:: DESTINATION ${package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake DESTINATION ${package_dir})
endif()
if(TARGET flashoverlap_cli)
  install(TARGETS flashoverlap_cli)
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/flashoverlapConfig.cmake.in ${PROJECT_BINARY_DIR}/flashoverlapConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashoverlapConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashoverlapConfig.cmake ${PROJECT_BINARY_DIR}/flashoverlapConfigVersion.cmake
        DESTINATION ${package_dir})
