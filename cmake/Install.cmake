# `cmake --install`, and what find_package(flashoverlap) and pkg-config read.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flashoverlap)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS flashoverlap EXPORT flashoverlapTargets)
install(EXPORT flashoverlapTargets NAMESPACE flashoverlap:: DESTINATION ${package_dir})
if(FLASHOVERLAP_NCCL)
  # Exported by itself, so that the rest can be used where there is no CUDA.
  install(TARGETS flashoverlap_cuda EXPORT flashoverlapCudaTargets)
  install(EXPORT flashoverlapCudaTargets NAMESPACE flashoverlap:: DESTINATION ${package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake DESTINATION ${package_dir})
else()
  foreach(example gpu_threads.cpp llama_mlp.cpp multi_node.cpp)
    list(APPEND without_gpu_examples PATTERN ${example} EXCLUDE)
  endforeach()
  foreach(header communicator operator result_reader rms_norm_gradient stream swiglu tuner workspace)
    list(APPEND without_gpu_headers PATTERN ${header}.hpp EXCLUDE)
  endforeach()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/flashoverlap ${PROJECT_BINARY_DIR}/include/flashoverlap
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${without_gpu_headers})

install(TARGETS flashoverlap_cli)
if(TARGET flashoverlap_gpu)
  install(TARGETS flashoverlap_gpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/flashoverlap)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/package/flashoverlap.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(
  FILES ${PROJECT_SOURCE_DIR}/package/flashoverlap.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME flashoverlap)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN *.cpp PATTERN *.hpp PATTERN python EXCLUDE ${without_gpu_examples})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/flashoverlapConfig.cmake.in ${PROJECT_BINARY_DIR}/flashoverlapConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashoverlapConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashoverlapConfig.cmake ${PROJECT_BINARY_DIR}/flashoverlapConfigVersion.cmake
        DESTINATION ${package_dir})

# A static library's users link what it needs.
list(JOIN BLAS_LIBRARIES " " private_libraries)
string(APPEND private_libraries " -pthread")
get_target_property(library_type flashoverlap TYPE)
if(library_type STREQUAL STATIC_LIBRARY)
  set(public_libraries ${private_libraries})
  set(private_libraries)
endif()
file(RELATIVE_PATH prefix_from_pc /${pkgconfig_dir} /)
set(pkgconfig_names flashoverlap)
if(FLASHOVERLAP_NCCL)
  list(APPEND pkgconfig_names flashoverlap-cuda)
endif()
foreach(name ${pkgconfig_names})
  configure_file(${PROJECT_SOURCE_DIR}/package/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_dir})
endforeach()
