#include "comm/peer_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/environment_variable.hpp"
#include "support/gpu_threads.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::gpu_count;
using ::testing::HasSubstr;

void on_ranks(int ranks, std::chrono::milliseconds limit,
              const std::function<void(const Communicator&)>& step, const std::string& error = "") {
  const std::string key = Communicator::make_key();
  const auto errors = testing::errors_on_gpus(
      ranks, [&](int rank) { step(Communicator(key, rank, ranks, {.wait_limit = limit})); });
  for (const std::string& each : errors) {
    if (error.empty()) {
      EXPECT_EQ(each, "");
    } else {
      EXPECT_THAT(each, HasSubstr(error));
    }
  }
}

std::vector<int> read(const void* from, std::size_t count) {
  std::vector<int> values(count);
  FLASHOVERLAP_CUDA(cudaMemcpy(values.data(), from, count * sizeof(int), cudaMemcpyDeviceToHost));
  return values;
}

TEST(PeerMemory, EveryRankAddressesThatOfAllOthers) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    const auto words = static_cast<std::size_t>(1000 * (rank + 1));  // a size of its own each
    const CudaStream stream;
    PeerMemory memory(communicator, words * sizeof(int));
    EXPECT_EQ(read(memory.of(rank), words), std::vector<int>(words, 0));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.of(rank)) % 256, 0u);
    for (int round = 1; round <= 20; ++round) {
      memory.meet();
      const int value = 100 * round + rank;
      for (int peer = 0; peer < ranks; ++peer) {
        FLASHOVERLAP_CUDA(cudaMemcpyAsync(reinterpret_cast<int*>(memory.of(peer)) + rank, &value,
                                          sizeof value, cudaMemcpyHostToDevice, stream));
      }
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
      memory.meet();
      std::vector<int> expected;
      for (int peer = 0; peer < ranks; ++peer) expected.push_back(100 * round + peer);
      EXPECT_EQ(read(memory.of(rank), expected.size()), expected);
    }
  });
}

TEST(PeerMemory, LivesAsLongAsAnyRankAddressesIt) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    auto memory = std::make_unique<PeerMemory>(communicator, sizeof(int));
    memory->meet();
    if (rank != 0) {
      memory.reset();
      return;
    }
    std::this_thread::sleep_for(200ms);
    const int value = 7;
    for (int peer = 0; peer < ranks; ++peer) {
      FLASHOVERLAP_CUDA(cudaMemcpy(memory->of(peer), &value, sizeof value, cudaMemcpyHostToDevice));
      EXPECT_EQ(read(memory->of(peer), 1).front(), 7);
    }
  });
}

TEST(PeerMemory, AnAbsentRankIsReportedInTime) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  on_ranks(ranks, 2s, [&](const Communicator& communicator) {
    PeerMemory memory(communicator, sizeof(int));
    memory.meet();
    if (communicator.rank() == 0) return std::this_thread::sleep_for(4s);
    EXPECT_THROW(memory.meet(), CommunicationError);
  });
}

TEST(PeerMemory, IsRefusedOnEveryRankWhereItIsForbidden) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  const testing::EnvironmentVariable forbids("NCCL_P2P_DISABLE", "1");
  on_ranks(
      ranks, 20s, [](const Communicator& communicator) { const PeerMemory memory(communicator, 1); },
      "NCCL_P2P_DISABLE forbids it");
}

}  // namespace
}  // namespace flashoverlap
