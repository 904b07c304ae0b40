// A counter says that its tiles are in memory: a second stream that copies a group the moment its counter is
// reached must see what is there when the GEMM is over. A stream reacts in about 3 us, so this finds signals
// that are early by more than that; docs/performance.md says what it does not find.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "flashoverlap/planner.hpp"
#include "gpu/gpu_ranks.hpp"
#include "random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::Element;
using testing::GpuRanks;

int runs_wanted() {
  const char* runs = std::getenv("FLASHOVERLAP_ORDERING_RUNS");
  return runs == nullptr ? 2000 : std::atoi(runs);
}

template <typename Function>
Function driver_function(const char* function_name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FLASHOVERLAP_CUDA(
      cudaGetDriverEntryPointByVersion(function_name, &function, 12000, cudaEnableDefault, &found));
  return reinterpret_cast<Function>(function);
}

TEST(Sm90Ordering, GroupsCopiedWhenTheirCounterIsReachedAreBitwiseFinal) {
  const auto wait_value = driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32");
  const auto write_value = driver_function<PFN_cuStreamWriteValue32_v11070>("cuStreamWriteValue32");
  const std::uint64_t seed = testing::base_seed();
  std::mt19937_64 engine(seed);
  cudaStream_t gemm_stream{};
  cudaStream_t copy_stream{};
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&gemm_stream, cudaStreamNonBlocking));
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking));

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
    const Plan& plan = plans[0];
    GpuRanks ranks(plans, engine());
    DeviceArray<Element> copy(static_cast<std::size_t>(problem.m * problem.n));
    const Sm90Gemm gemm(plan, ranks.memory());
    auto* const out =
        static_cast<Element*>(ranks.memory().buffers[0][static_cast<std::size_t>(BufferRole::out)].base);
    for (int repetition = 0; repetition < runs_per_shape; ++repetition) {
      // Whatever was there before must not pass for a result.
      FLASHOVERLAP_CUDA(cudaMemsetAsync(out, repetition % 2 == 0 ? 0xFF : 0x77, copy.size() * sizeof(Element),
                                        gemm_stream));
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(gemm_stream));
      gemm.launch(gemm_stream);
      for (const Message& message : plan.messages) {
        const std::int32_t counter = message.waits[0].counter;
        const auto address = reinterpret_cast<CUdeviceptr>(ranks.counter(0, counter));
        const auto target = static_cast<cuuint32_t>(plan.counters[static_cast<std::size_t>(counter)].target);
        ASSERT_EQ(wait_value(copy_stream, address, target, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
        const std::int64_t first = message.source.row * problem.n;
        FLASHOVERLAP_CUDA(
            cudaMemcpyAsync(copy.data() + first, out + first,
                            static_cast<std::size_t>(message.source.rows * problem.n) * sizeof(Element),
                            cudaMemcpyDeviceToDevice, copy_stream));
        ASSERT_EQ(write_value(copy_stream, address, 0, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
      }
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(copy_stream));
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(gemm_stream));
      const Buffer shape{problem.m, problem.n};
      ASSERT_TRUE(testing::download(DataType::bf16, shape, copy) == ranks.result(0, BufferRole::out))
          << "repetition " << repetition;
    }
  }
  FLASHOVERLAP_CUDA(cudaStreamDestroy(gemm_stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(copy_stream));
}

}  // namespace
}  // namespace flashoverlap
