# Installs the build in BUILD_DIR below WORK_DIR, then builds and runs the consumer in SOURCE_DIR against it.
# The compiler and its flags are the library's, as sanitizers must match.
set(prefix ${WORK_DIR}/prefix)
set(consumer ${WORK_DIR}/consumer)
file(REMOVE_RECURSE ${prefix} ${consumer})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${consumer} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DEXPECT_CUDA=${EXPECT_CUDA})
run(${CMAKE_COMMAND} --build ${consumer})
run(${consumer}/consumer)
if(EXPECT_CUDA)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env --unset=RANK --unset=OMPI_COMM_WORLD_RANK --unset=PMI_RANK --unset=SLURM_PROCID
            ${consumer}/gpu_consumer
    RESULT_VARIABLE status
    ERROR_VARIABLE said)
  if(status EQUAL 0 OR NOT said MATCHES "RANK = \\(not set\\)")
    message(FATAL_ERROR "without a launcher it should have named what is missing: ${said}")
  endif()
endif()
