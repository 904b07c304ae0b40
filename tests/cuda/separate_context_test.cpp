#include "cuda/separate_context.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "comm/bounded_wait.hpp"
#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {
namespace {

TEST(SeparateContext, WritesAndReadsWhileStreamsHoldAllConnections) {
  if (stream_means() != StreamMeans::operations) GTEST_SKIP() << "needs waits of the driver";
  constexpr std::size_t more_than_connections = 40;
  const DeviceArray<std::uint32_t> words(2);
  words.set_bytes(0);
  std::vector<std::unique_ptr<CudaStream>> streams;
  for (std::size_t stream = 0; stream < more_than_connections; ++stream) {
    StreamMemoryBatch batch({.limit = std::chrono::seconds(1), .expired = nullptr});
    batch.wait_until_reached(words.data(), 7);
    batch.enqueue(*streams.emplace_back(std::make_unique<CudaStream>()));
  }
  SeparateContext separate;
  const auto are_over = [&] { return is_over(cudaStreamQuery(*streams.back()), "cudaStreamQuery"); };
  EXPECT_FALSE(are_over());
  separate.write(std::array{WordToWrite{words.data() + 1, 5}, WordToWrite{words.data(), 7}});
  EXPECT_TRUE(holds_within(std::chrono::seconds(5), are_over));
  std::array<std::uint32_t, 2> values{};
  separate.read(values.data(), words.data(), sizeof values);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1], 5);
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
}

TEST(SeparateContext, LeavesTheCallersContextCurrent) {
  const DeviceArray<std::uint32_t> words(1);
  words.set_bytes(0);
  SeparateContext separate;
  separate.write(std::array{WordToWrite{words.data(), 3}});
  std::uint32_t value = 0;
  FLASHOVERLAP_CUDA(cudaMemcpy(&value, words.data(), sizeof value, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace flashoverlap
