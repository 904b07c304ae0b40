#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "exec/cuda/gpu_support.hpp"
#include "exec/cuda/message_kernels.hpp"

namespace flashoverlap {

/// What all GPUs that this process sees offer.
StreamMeans stream_means();

/// How long a kernel waits, and the word that it sets if that was not enough. Operations of the driver wait
/// for ever.
struct WaitBound {
  std::chrono::nanoseconds limit{};
  std::uint32_t* expired = nullptr;
};

/// Waits for and writes of words by a stream, gathered into one call: by operations of the driver, which take
/// no multiprocessor (CUDA driver API, "Stream Memory Operations"), or by a kernel of one thread.
class StreamMemoryBatch {
 public:
  /// Without `bound` only for writes.
  explicit StreamMemoryBatch(const WaitBound& bound = {}, StreamMeans means = stream_means())
      : bound_(bound), means_(means) {}

  /// The stream goes on when the word is at least `target`; then it sees what was written before the word was
  /// raised.
  void wait_until_reached(const std::uint32_t* word, std::uint32_t target);
  /// What the stream did before is visible to whoever sees the value.
  void write(std::uint32_t* word, std::uint32_t value);
  /// Enqueues what was gathered; captured where the stream is.
  void enqueue(cudaStream_t stream) const;

  void clear() { operations_.clear(); }

 private:
  template <typename Visit>
  void for_each_call(const Visit& visit) const;

  WaitBound bound_;
  StreamMeans means_;
  std::vector<StreamOperation> operations_;
};

}  // namespace flashoverlap
