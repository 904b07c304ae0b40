#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/separate_context.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap::testing {

/// Streams of the current GPU, more than it has connections, that wait from `hold` until this is destroyed.
class HeldConnections {
 public:
  HeldConnections() {
    word_.set_bytes(0);
    constexpr std::size_t more_than_connections = 40;
    while (streams_.size() < more_than_connections) streams_.push_back(std::make_unique<CudaStream>());
  }
  void hold() const {
    for (const auto& stream : streams_) {
      StreamMemoryBatch batch({.limit = std::chrono::minutes(1), .expired = nullptr});
      batch.wait_until_reached(word_.data(), 1);
      batch.enqueue(*stream);
    }
  }
  ~HeldConnections() {
    try {
      separate_.write(std::array{WordToWrite{word_.data(), 1}});
      FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

 private:
  SeparateContext separate_;
  DeviceArray<std::uint32_t> word_{1};
  std::vector<std::unique_ptr<CudaStream>> streams_;
};

}  // namespace flashoverlap::testing
