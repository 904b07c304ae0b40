#include "exec/cuda/stream_memory.hpp"

#include <algorithm>

#include "cuda/driver.hpp"

namespace flashoverlap {

void StreamMemoryBatch::wait_until_reached(const std::uint32_t* word, std::uint32_t target) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = reinterpret_cast<CUdeviceptr>(word);
  operation.waitValue.value = target;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  operations_.push_back(operation);
}

void StreamMemoryBatch::write(std::uint32_t* word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = reinterpret_cast<CUdeviceptr>(word);
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  operations_.push_back(operation);
}

void StreamMemoryBatch::enqueue(cudaStream_t stream) const {
  static const auto batch = driver_function<PFN_cuStreamBatchMemOp_v11070>("cuStreamBatchMemOp", 11070);
  constexpr std::size_t most_at_once = 255;  // by its documentation
  for (std::size_t first = 0; first < operations_.size(); first += most_at_once) {
    const std::size_t count = std::min(most_at_once, operations_.size() - first);
    // The driver takes the list as not constant, but does not change it.
    const CUresult result = batch(stream, static_cast<unsigned>(count),
                                  const_cast<CUstreamBatchMemOpParams*>(operations_.data() + first), 0);
    if (result != CUDA_SUCCESS)
      throw CudaError(fmt::format("cuStreamBatchMemOp: error {}", static_cast<int>(result)));
  }
}

}  // namespace flashoverlap
