# Fails if a data type that is added to the enumeration, and to nothing else, compiles where its elements are told
# apart: it would silently be taken for another one. CUDA_INCLUDE_DIRS: of CUDA and NCCL, where there are any.
cmake_minimum_required(VERSION 3.25)
set(files src/data_type/data_type.cpp src/data_type/elements.cpp src/data_type/matrix.cpp)
if(CUDA_INCLUDE_DIRS)
  list(APPEND files src/gemm/cublas/cublas_gemm.cpp src/gemm/sm90/tensor_map.cpp src/comm/nccl_communicator.cpp)
endif()

file(READ ${ROOT}/include/flashoverlap/data_type.hpp header)
string(REGEX REPLACE "(enum class DataType[^}]*) }" "\\1, unheard_of }" changed "${header}")
if(changed STREQUAL header)
  message(FATAL_ERROR "data_type.hpp does not declare DataType as expected")
endif()
file(WRITE ${WORK_DIR}/flashoverlap/data_type.hpp "${changed}")

foreach(include ${CUDA_INCLUDE_DIRS})
  list(APPEND system_includes -isystem ${include})
endforeach()
foreach(file ${files})
  execute_process(
    COMMAND ${CXX_COMPILER} -std=c++20 -Wall -Werror -fsyntax-only -I${WORK_DIR} -I${ROOT}/include -I${ROOT}/src
            ${system_includes} ${ROOT}/${file}
    RESULT_VARIABLE status
    ERROR_VARIABLE said)
  if(status EQUAL 0 OR NOT said MATCHES "unheard_of")
    message(FATAL_ERROR "${file} compiles with a data type that it does not know: ${said}")
  endif()
endforeach()
