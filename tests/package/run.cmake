# Installs the build in BUILD_DIR below WORK_DIR, then uses the package as its users do. The compiler and its flags are
# the library's, as sanitizers must match.
cmake_minimum_required(VERSION 3.25)
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The command fails and says what matches the regular expression.
function(expect_failure regex)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(status EQUAL 0 OR NOT said MATCHES "${regex}")
    message(FATAL_ERROR "${ARGN}\nshould have failed with \"${regex}\", but said: ${said}")
  endif()
endfunction()

# Configures PROJECT against the installed package, in a folder of its own.
function(configuration project variable)
  set(${variable} ${CMAKE_COMMAND} -S ${SOURCE_DIR}/${project} -B ${WORK_DIR}/${variable} -G ${GENERATOR}
      -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
      -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DNCCL_INCLUDE_DIR=${NCCL_INCLUDE_DIR} -DNCCL_LIBRARY=${NCCL_LIBRARY}
      -DEXPECT_CUDA=${EXPECT_CUDA} PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# Files.
file(GLOB_RECURSE installed RELATIVE ${prefix} ${prefix}/*)
set(expected bin/flashoverlap include/flashoverlap/version\\.hpp share/man/man1/flashoverlap\\.1
    share/bash-completion/completions/flashoverlap share/doc/flashoverlap/LICENSE
    share/doc/flashoverlap/CHANGELOG\\.md share/doc/flashoverlap/examples/quickstart\\.cpp
    "[a-z0-9_/-]*/pkgconfig/flashoverlap\\.pc")
set(expected_with_cuda "[a-z0-9_/-]*/flashoverlap/flashoverlap_gpu\\.so" "[a-z0-9_/-]*/pkgconfig/flashoverlap-cuda\\.pc")
set(headers ${SOURCE_DIR}/../../include/flashoverlap)
file(GLOB names RELATIVE ${headers} ${headers}/*.hpp)
foreach(name ${names})
  file(STRINGS ${headers}/${name} of_gpus REGEX "^#include \"flashoverlap/(communicator|stream)\\.hpp\"")
  string(REPLACE "." "\\." pattern include/flashoverlap/${name})
  if(of_gpus OR name STREQUAL "stream.hpp")
    list(APPEND expected_with_cuda ${pattern})
  else()
    list(APPEND expected ${pattern})
  endif()
endforeach()
foreach(file ${expected} ${expected_with_cuda})
  set(found ${installed})
  list(FILTER found INCLUDE REGEX "^${file}$")
  if(file IN_LIST expected OR EXPECT_CUDA)
    if(NOT found)
      message(FATAL_ERROR "${file} is not installed, only: ${installed}")
    endif()
  elseif(found)
    message(FATAL_ERROR "${found} is installed without CUDA and NCCL")
  endif()
endforeach()

# The command needs no CUDA library, finds its module for GPUs, and says what is wrong with it.
set(command ${prefix}/bin/flashoverlap)
run(${command} --version)
execute_process(COMMAND ldd ${command} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "cuda|cublas|nccl")
  message(FATAL_ERROR "the command links what only GPUs need: ${needed}")
endif()
set(on_gpus ${CMAKE_COMMAND} -E env --unset=RANK --unset=OMPI_COMM_WORLD_RANK CUDA_VISIBLE_DEVICES= ${command} check --gpus 2)
if(EXPECT_CUDA)
  expect_failure("no GPU can be used here" ${on_gpus})
  file(GLOB_RECURSE module ${prefix}/flashoverlap_gpu.so)
  file(RENAME ${module} ${module}.kept)
  expect_failure("is missing: there is neither .*flashoverlap_gpu.so nor .*flashoverlap_gpu.so" ${on_gpus})
  file(WRITE ${module} "")
  expect_failure("cannot be loaded: .*flashoverlap_gpu.so: file too short" ${on_gpus})
  file(RENAME ${module}.kept ${module})
else()
  expect_failure("was built without .*NCCL" ${on_gpus})
endif()

# Its manual and its completion.
run(${SOURCE_DIR}/man_page_test.sh ${prefix})
run(${SOURCE_DIR}/completion_test.sh ${prefix})

# CMake.
configuration(. consumer)
run(${consumer})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/consumer)
execute_process(COMMAND ${WORK_DIR}/consumer/consumer OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(NOT said STREQUAL "2 valid plans of version ${VERSION} = ${VERSION}\n")
  message(FATAL_ERROR "the consumer said ${said}")
endif()
if(EXPECT_CUDA)
  expect_failure("RANK = \\(not set\\)" ${CMAKE_COMMAND} -E env --unset=RANK --unset=OMPI_COMM_WORLD_RANK
                 --unset=PMI_RANK --unset=SLURM_PROCID ${WORK_DIR}/consumer/gpu_consumer)
endif()

configuration(missing missing)
foreach(dependency fmt BLAS Threads)
  expect_failure("dependency ${dependency}" ${missing} --fresh -DCMAKE_DISABLE_FIND_PACKAGE_${dependency}=ON)
endforeach()
expect_failure("component tools: there is no such component" ${missing} --fresh -DREQUIRED=REQUIRED
               -DCOMPONENT=tools)
list(APPEND missing --fresh -DREQUIRED=REQUIRED -DCOMPONENT=cuda)
if(EXPECT_CUDA)
  foreach(dependency CUDAToolkit NCCL)
    expect_failure("component cuda: ${dependency} was not found" ${missing} -DCMAKE_DISABLE_FIND_PACKAGE_${dependency}=ON)
  endforeach()
else()
  expect_failure("component cuda: this package was built without CUDA" ${missing})
endif()

# pkg-config.
file(GLOB_RECURSE pc_file ${prefix}/flashoverlap.pc)
cmake_path(GET pc_file PARENT_PATH pc_folder)
set(ENV{PKG_CONFIG_PATH} ${pc_folder}:$ENV{PKG_CONFIG_PATH})
function(compile_with_pkg_config package source program)
  execute_process(COMMAND pkg-config --cflags --libs ${package} OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS} ${flags}")
  run(${CXX_COMPILER} -std=c++20 ${source} -o ${program} ${flags})
endfunction()
compile_with_pkg_config(flashoverlap ${prefix}/share/doc/flashoverlap/examples/quickstart.cpp ${WORK_DIR}/quickstart)
run(${WORK_DIR}/quickstart)
if(EXPECT_CUDA)
  execute_process(COMMAND pkg-config --exists --print-errors flashoverlap-cuda COMMAND_ERROR_IS_FATAL ANY)
endif()
