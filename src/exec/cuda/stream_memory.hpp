#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace flashoverlap {

/// Waits for and writes of words that a stream makes by itself, without a multiprocessor (CUDA driver API,
/// "Stream Memory Operations"), gathered into one call.
class StreamMemoryBatch {
 public:
  /// The stream goes on when the word is at least `target`; then it sees what was written before the word was
  /// raised.
  void wait_until_reached(const std::uint32_t* word, std::uint32_t target);
  /// What the stream did before is visible to whoever sees the value.
  void write(std::uint32_t* word, std::uint32_t value);
  /// Enqueues what was gathered; captured where the stream is.
  void enqueue(cudaStream_t stream) const;

 private:
  std::vector<CUstreamBatchMemOpParams> operations_;
};

}  // namespace flashoverlap
