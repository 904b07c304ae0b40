# The CUDA parts are compiled where an nvcc is found that knows Hopper; -DFLASHOVERLAP_CUDA=ON|OFF decides by hand.

# GPUs since Ampere; PTX for those that are newer than all of these. What is compiled for sm_80 runs on sm_86 and
# sm_89 as it is. Families of GEMM kernels have architectures of their own.
set(CMAKE_CUDA_ARCHITECTURES 80 90-real)

# NVIDIA's packages leave nvcc off the PATH.
find_program(FLASHOVERLAP_NVCC nvcc PATHS /usr/local/cuda/bin)
mark_as_advanced(FLASHOVERLAP_NVCC)
if(FLASHOVERLAP_NVCC AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${FLASHOVERLAP_NVCC})
endif()

set(cuda_reason "FLASHOVERLAP_CUDA is OFF")
if(NOT DEFINED FLASHOVERLAP_CUDA)
  set(cuda_reason "no nvcc for sm_90a found")
  set(ENV{CUDAARCHS} 90a-real)  # the check below is a project of its own
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  include(CheckLanguage)
  check_language(CUDA)
  unset(CMAKE_MESSAGE_LOG_LEVEL)
  if(CMAKE_CUDA_COMPILER)
    set(FLASHOVERLAP_CUDA ON)
  else()
    set(FLASHOVERLAP_CUDA OFF)
    unset(CMAKE_CUDA_COMPILER CACHE)  # so that an nvcc installed later is found
  endif()
endif()

set(FLASHOVERLAP_NCCL OFF)
if(FLASHOVERLAP_CUDA)
  enable_language(CUDA)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the command loads what needs GPUs as a module
  # CMake 3.25.1 does not know that nvcc speaks C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  message(STATUS "CUDA parts: compiled for sm_80, sm_86, sm_90a")

  find_package(CUDAToolkit REQUIRED)
  list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
  find_package(NCCL 2.28.9) # has ncclCommRevoke
  if(NCCL_FOUND)
    set(FLASHOVERLAP_NCCL ON)
  endif()
else()
  message(STATUS "CUDA parts: left out (${cuda_reason})")
endif()
