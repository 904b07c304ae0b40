#include "exec/cuda/stream_memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

/// Words 0 to 2, and the one that kernels set whose wait expires.
class StreamMemoryTest : public ::testing::TestWithParam<StreamMeans> {
 protected:
  static constexpr std::size_t expired = 3;

  StreamMemoryTest() {
    words_.set_bytes(0);
    FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    FLASHOVERLAP_CUDA(load_message_kernels());
  }

  StreamMemoryBatch batch(std::chrono::nanoseconds limit = 20s) const {
    return StreamMemoryBatch({limit, words_.data() + expired}, GetParam());
  }

  std::array<std::uint32_t, 4> read() const {
    std::array<std::uint32_t, 4> values{};
    FLASHOVERLAP_CUDA(
        cudaMemcpyAsync(values.data(), words_.data(), sizeof values, cudaMemcpyDeviceToHost, reader_));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(reader_));
    return values;
  }

  DeviceArray<std::uint32_t> words_{4};
  CudaStream one_;
  CudaStream other_;
  CudaStream reader_;
};

TEST_P(StreamMemoryTest, AStreamWaitsUntilAnotherHasWritten) {
  StreamMemoryBatch waits = batch();
  waits.wait_until_reached(words_.data(), 2);
  waits.write(words_.data() + 1, 7);
  waits.enqueue(one_);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady);
  EXPECT_EQ(read()[1], 0U);

  StreamMemoryBatch writes = batch();
  writes.write(words_.data(), 2);
  writes.enqueue(other_);
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(one_));
  EXPECT_EQ(read()[1], 7U);
  EXPECT_EQ(read()[expired], 0U);
}

TEST_P(StreamMemoryTest, MoreThanOneCallTakesKeepTheirOrder) {
  StreamMemoryBatch many = batch();
  for (std::uint32_t value = 1; value <= 700; ++value) {
    many.write(words_.data(), value);
    many.wait_until_reached(words_.data(), value);
  }
  many.enqueue(one_);
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(one_));
  EXPECT_EQ(read()[0], 700U);
}

TEST_P(StreamMemoryTest, AGraphDoesWhatWasEnqueuedInEachReplay) {
  FLASHOVERLAP_CUDA(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal));
  StreamMemoryBatch enqueued = batch();
  enqueued.write(words_.data(), 1);
  enqueued.wait_until_reached(words_.data(), 1);
  enqueued.enqueue(one_);
  StreamMemoryBatch after = batch();
  after.wait_until_reached(words_.data(), 1);
  after.write(words_.data() + 1, 5);
  after.enqueue(one_);
  cudaGraph_t graph = nullptr;
  FLASHOVERLAP_CUDA(cudaStreamEndCapture(one_, &graph));
  cudaGraphExec_t runnable = nullptr;
  FLASHOVERLAP_CUDA(cudaGraphInstantiate(&runnable, graph, 0));
  for (int run = 0; run < 3; ++run) {
    words_.set_bytes(0);
    FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    FLASHOVERLAP_CUDA(cudaGraphLaunch(runnable, one_));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(one_));
    EXPECT_EQ(read(), (std::array<std::uint32_t, 4>{1, 5, 0, 0}));
  }
  FLASHOVERLAP_CUDA(cudaGraphExecDestroy(runnable));
  FLASHOVERLAP_CUDA(cudaGraphDestroy(graph));
}

INSTANTIATE_TEST_SUITE_P(BothMeans, StreamMemoryTest,
                         ::testing::Values(StreamMeans::operations, StreamMeans::kernels),
                         [](const auto& instance) {
                           return instance.param == StreamMeans::operations ? "Operations" : "Kernels";
                         });

class StreamKernelTest : public StreamMemoryTest {};

TEST_P(StreamKernelTest, AWaitInVainEndsAndIsNoted) {
  StreamMemoryBatch waits = batch(50ms);
  waits.wait_until_reached(words_.data(), 1);
  waits.write(words_.data() + 1, 7);
  waits.enqueue(one_);
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(one_));
  EXPECT_EQ(read(), (std::array<std::uint32_t, 4>{0, 0, 0, 1}));
}

INSTANTIATE_TEST_SUITE_P(Kernels, StreamKernelTest, ::testing::Values(StreamMeans::kernels));

// Fails on a GPU whose attributes deny operations that it has: runs would take kernels for nothing.
TEST(StreamMeansTest, AreOperationsExactlyWhereTheDriverTakesThem) {
  const DeviceArray<std::uint32_t> word(1);
  const CudaStream stream;
  bool taken = true;
  try {
    StreamMemoryBatch batch({}, StreamMeans::operations);
    batch.write(word.data(), 1);
    batch.enqueue(stream);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  } catch (const CudaError&) {
    taken = false;
  }
  EXPECT_EQ(stream_means() == StreamMeans::operations, taken);
}

}  // namespace
}  // namespace flashoverlap
