// A counter says that its tiles are in memory: whoever copies a group the moment its counter is reached must
// see what is there when the GEMM is over. Two observers: a stream, as the executor uses it, which reacts in
// about 3 us, and blocks on the free multiprocessors, which react in less than one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "flashoverlap/planner.hpp"
#include "gemm/cuda_driver.hpp"
#include "gemm/cuda_handles.hpp"
#include "gpu/gpu_ranks.hpp"
#include "gpu/observer.hpp"
#include "random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::Element;
using testing::GpuRanks;

int runs_wanted() {
  const char* runs = std::getenv("FLASHOVERLAP_ORDERING_RUNS");
  return runs == nullptr ? 2000 : std::atoi(runs);
}

struct Streams {
  CudaStream gemm;
  CudaStream copy;
};

/// A GEMM of 16 multiprocessors and what its messages may copy when.
struct WatchedGemm {
  const GpuRanks& ranks;
  const Plan& plan;
  Element* out;
  DeviceArray<Element> copy;

  const Buffer& shape() const { return plan.buffer(BufferRole::out); }
  std::vector<testing::Announced> announced() const {
    std::vector<testing::Announced> ranges;
    for (const Message& message : plan.messages) {
      const std::int32_t counter = message.waits[0].counter;
      ranges.push_back({ranks.counter(0, counter),
                        static_cast<std::uint32_t>(plan.counters[static_cast<std::size_t>(counter)].target),
                        message.source.row * shape().cols, message.source.rows * shape().cols});
    }
    return ranges;
  }
};

/// Random problems until `FLASHOVERLAP_ORDERING_RUNS` runs are done. `observe` sends copies to `streams.copy`
/// that wait for counters; it is called before the GEMM is launched if it occupies the GPU itself.
template <typename Observe>
void expect_announced_is_final(bool observe_first, Observe&& observe) {
  const std::uint64_t seed = testing::base_seed();
  std::mt19937_64 engine(seed);
  const Streams streams;
  const int runs = runs_wanted();
  constexpr int runs_per_shape = 50;
  for (int run = 0; run < runs && !::testing::Test::HasFailure(); run += runs_per_shape) {
    const auto tiles = kernel_tiles();
    const KernelTile& tile = tiles[engine() % tiles.size()];
    const Problem problem{.m = static_cast<std::int64_t>(engine() % 2000 + 1),
                          .n = static_cast<std::int64_t>(engine() % 250 + 1) * 8,
                          .k = static_cast<std::int64_t>(engine() % 32 + 1) * 8};
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} m {} n {} k {} tile {}x{}/{}", seed, problem.m, problem.n,
                             problem.k, tile.rows, tile.cols, tile.cluster_rows));
    const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::signal,
                                                         .tile_rows = tile.rows,
                                                         .tile_cols = tile.cols,
                                                         .cluster_rows = tile.cluster_rows,
                                                         .multiprocessors = 16});
    GpuRanks ranks(plans, engine());
    const Sm90Gemm gemm(plans[0], ranks.memory());
    WatchedGemm state{
        ranks, plans[0],
        static_cast<Element*>(ranks.memory().buffers[0][static_cast<std::size_t>(BufferRole::out)].base),
        DeviceArray<Element>(static_cast<std::size_t>(problem.m * problem.n))};
    gemm.launch(streams.gemm);  // kernels are loaded when first launched, which may wait for what runs
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.gemm));
    for (int repetition = 0; repetition < runs_per_shape; ++repetition) {
      // Whatever was there before must not pass for a result.
      FLASHOVERLAP_CUDA(cudaMemsetAsync(state.out, repetition % 2 == 0 ? 0xFF : 0x77,
                                        state.copy.size() * sizeof(Element), streams.gemm));
      ranks.set_counters(0, 0);
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.gemm));
      if (observe_first) observe(state, streams.copy);
      gemm.launch(streams.gemm);
      if (!observe_first) observe(state, streams.copy);
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.copy));
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.gemm));
      ASSERT_TRUE(testing::download(DataType::bf16, state.shape(), state.copy) ==
                  ranks.result(0, BufferRole::out))
          << "repetition " << repetition;
    }
  }
}

TEST(Sm90Ordering, GroupsCopiedByAStreamWhenTheirCounterIsReachedAreBitwiseFinal) {
  const auto wait_value = driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32", 11070);
  expect_announced_is_final(false, [&](WatchedGemm& run, cudaStream_t stream) {
    for (const testing::Announced& range : run.announced()) {
      ASSERT_EQ(wait_value(stream, reinterpret_cast<CUdeviceptr>(range.counter), range.target,
                           CU_STREAM_WAIT_VALUE_GEQ),
                CUDA_SUCCESS);
      FLASHOVERLAP_CUDA(cudaMemcpyAsync(run.copy.data() + range.first, run.out + range.first,
                                        static_cast<std::size_t>(range.count) * sizeof(Element),
                                        cudaMemcpyDeviceToDevice, stream));
    }
  });
}

TEST(Sm90Ordering, GroupsCopiedByBlocksThatWatchTheirCounterAreBitwiseFinal) {
  std::vector<DeviceArray<testing::Announced>> kept;  // until the next run has ended
  expect_announced_is_final(true, [&](WatchedGemm& run, cudaStream_t stream) {
    const std::vector<testing::Announced> ranges = run.announced();
    kept.clear();
    kept.emplace_back(ranges);
    FLASHOVERLAP_CUDA(testing::copy_when_announced(kept.back().data(), static_cast<int>(ranges.size()),
                                                   run.out, run.copy.data(), stream));
  });
}

}  // namespace
}  // namespace flashoverlap
