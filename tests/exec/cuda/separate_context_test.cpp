#include "exec/cuda/separate_context.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/bounded_wait.hpp"
#include "cuda/device_array.hpp"
#include "cuda/driver.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {
namespace {

TEST(SeparateContext, WritesAndReadsWhileStreamsHoldAllConnections) {
  if (stream_means() != StreamMeans::operations) GTEST_SKIP() << "needs waits of the driver";
  constexpr std::size_t more_than_connections = 40;
  const DeviceArray<std::uint32_t> words(2);
  words.set_bytes(0);
  SeparateContext separate;
  const CudaStream other;
  std::vector<std::unique_ptr<CudaStream>> streams;
  while (streams.size() < more_than_connections) streams.push_back(std::make_unique<CudaStream>());
  for (const auto& stream : streams) {
    StreamMemoryBatch batch({.limit = std::chrono::seconds(1), .expired = nullptr});
    batch.wait_until_reached(words.data(), 7);
    batch.enqueue(*stream);
  }
  FLASHOVERLAP_CUDA(cudaMemsetAsync(words.data() + 1, 0, sizeof(std::uint32_t), other));
  const auto passes = [&] { return is_over(cudaStreamQuery(other), "cudaStreamQuery"); };
  EXPECT_FALSE(holds_within(std::chrono::milliseconds(200), passes)) << "a stream that waits for nothing";
  separate.write(std::array{WordToWrite{words.data(), 7}});
  EXPECT_TRUE(holds_within(std::chrono::seconds(5), passes));
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  separate.write(std::array{WordToWrite{words.data() + 1, 5}});
  std::array<std::uint32_t, 2> values{};
  separate.read(values.data(), words.data(), sizeof values);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1], 5);
}

TEST(SeparateContext, IsMadeAndWritesWhileAnotherThreadFreesMemoryAndWaitsForTheGpuWithThat) {
  if (stream_means() != StreamMeans::operations) GTEST_SKIP() << "needs waits of the driver";
  const DeviceArray<std::uint32_t> word(1);
  word.set_bytes(0);
  const CudaStream stream;
  StreamMemoryBatch batch({.limit = std::chrono::seconds(1), .expired = nullptr});
  batch.wait_until_reached(word.data(), 7);
  batch.enqueue(stream);
  auto freed = std::make_unique<DeviceArray<std::byte>>(64 << 20);
  std::atomic<bool> is_freed = false;
  std::jthread frees([&] {
    freed.reset();
    is_freed = true;
  });
  EXPECT_FALSE(holds_within(std::chrono::milliseconds(200), [&] { return is_freed.load(); }));
  SeparateContext separate;
  separate.write(std::array{WordToWrite{word.data(), 7}});
  EXPECT_TRUE(holds_within(std::chrono::seconds(5), [&] { return is_freed.load(); }));
}

TEST(SeparateContext, LeavesTheCallersContextCurrent) {
  const DeviceArray<std::uint32_t> words(1);
  words.set_bytes(0);
  const auto get_current = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000);
  CUcontext before{};
  CUcontext after{};
  get_current(&before);
  SeparateContext separate;
  separate.write(std::array{WordToWrite{words.data(), 3}});
  get_current(&after);
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace flashoverlap
