# Fails unless every public header, by itself, the examples and the initialisers that users write compile without
# warnings by COMPILER. INCLUDES: folders of the headers that public ones include; files that need CUDA's headers are
# compiled where CUDA_INCLUDES has them.
cmake_minimum_required(VERSION 3.25)

set(sources ${CMAKE_CURRENT_LIST_DIR}/designated_initialisers.cpp)
file(GLOB headers RELATIVE ${ROOT}/include ${ROOT}/include/flashoverlap/*.hpp)
file(REMOVE_RECURSE ${WORK_DIR})
foreach(header ${headers})
  string(REPLACE "/" "_" name ${header})
  file(WRITE ${WORK_DIR}/${name}.cpp "#include \"${header}\"\n")
  list(APPEND sources ${WORK_DIR}/${name}.cpp)
endforeach()
file(GLOB examples ${ROOT}/examples/*.cpp)
foreach(example ${examples})
  file(STRINGS ${example} cuda_headers REGEX "^#include <cuda")
  if(CUDA_INCLUDES OR NOT cuda_headers)
    list(APPEND sources ${example})
  endif()
endforeach()

list(TRANSFORM INCLUDES PREPEND -I)
list(TRANSFORM CUDA_INCLUDES PREPEND -isystem)
execute_process(
  COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I${ROOT}/include ${INCLUDES}
          ${CUDA_INCLUDES} ${sources}
  RESULT_VARIABLE status
  ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${errors}")
endif()
