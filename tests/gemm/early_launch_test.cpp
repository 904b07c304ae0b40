// Kernels that begin before the one before them has ended, and workers that share tiles: GEMMs of which each
// takes the result of the one before, from a graph, against the same GEMMs one at a time, bit by bit.
#include <gtest/gtest.h>

#include <array>

#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::Element;

constexpr int links = 16;

/// Square B, so that a result can be the next A. Small values: the results grow along the chain.
class Chain {
 public:
  Chain(std::int64_t m, std::int64_t n, const KernelTile& tile, bool shares, std::uint64_t seed)
      : plans_(make_plans({.m = m, .n = n, .k = n, .data_type = DataType::bf16},
                          {.strategy = Strategy::sequential,
                           .tile_rows = tile.rows,
                           .tile_cols = tile.cols,
                           .cluster_rows = tile.cluster_rows,
                           .multiprocessors = 132,
                           .share_k = shares})),
        b_(testing::upload(random_matrix(DataType::bf16, n, n, seed))),
        first_(testing::upload(random_matrix(DataType::bf16, m, n, seed + 1))) {
    for (DeviceArray<Element>& result : results_) result = DeviceArray<Element>(first_.size());
  }

  /// Early ones load B, which no kernel of the chain writes, before the one before has ended.
  std::unique_ptr<GemmKernel> kernel(bool begins_early) {
    const Plan& plan = plans_[0];
    GemmMemory memory{.buffers = {{}}, .counters = {counters_.data()}};
    const auto describe = [&](BufferRole role, void* base) {
      const Buffer& buffer = plan.buffer(role);
      memory.buffers[0][static_cast<std::size_t>(role)] = {base, buffer.rows, buffer.cols, buffer.cols};
    };
    describe(BufferRole::a, first_.data());
    describe(BufferRole::b, b_.data());
    describe(BufferRole::out, results_[0].data());
    return make_gemm_kernel(plan, memory,
                            {.counts = false, .begins_early = begins_early, .b_is_constant = begins_early});
  }

  void launch(GemmKernel& kernel, int link, cudaStream_t stream) {
    kernel.rebind(BufferRole::a, link == 0 ? first_.data() : results_[(link + 1) % 2].data());
    kernel.rebind(BufferRole::out, results_[link % 2].data());
    kernel.launch(stream);
  }

  void poison() {
    for (DeviceArray<Element>& result : results_) result.set_bytes(0xFF);
  }
  std::vector<Element> last() const {
    std::vector<Element> elements(first_.size());
    FLASHOVERLAP_CUDA(cudaMemcpy(elements.data(), results_[(links - 1) % 2].data(),
                                 elements.size() * sizeof(Element), cudaMemcpyDeviceToHost));
    return elements;
  }

 private:
  std::vector<Plan> plans_;
  DeviceArray<Element> b_;
  DeviceArray<Element> first_;
  std::array<DeviceArray<Element>, 2> results_;
  DeviceArray<std::uint32_t> counters_{64};
};

TEST(EarlyLaunch, AChainOfKernelsGivesTheBitsOfKernelsOneAtATime) {
  const KernelFamily& family = *kernel_family(90);
  std::uint64_t seed = testing::base_seed();
  for (const KernelTile& tile : family.tiles) {
    for (const bool shares : {false, true}) {
      if (shares && !shares_k(family, tile)) continue;
      for (const std::int64_t m : {16, 200}) {
        SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} m {} tile {}x{}/{} shares {}", ++seed, m, tile.rows,
                                 tile.cols, tile.cluster_rows, shares));
        Chain chain(m, 1536, tile, shares, seed);
        const CudaStream stream;
        const auto alone = chain.kernel(/*begins_early=*/false);
        chain.poison();
        for (int link = 0; link < links; ++link) {
          chain.launch(*alone, link, stream);
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
        }
        alone->check_waits();
        const std::vector<Element> expected = chain.last();

        const auto early = chain.kernel(/*begins_early=*/true);
        const CudaGraph graph(stream, [&] {
          for (int link = 0; link < links; ++link) chain.launch(*early, link, stream);
        });
        for (int turn = 0; turn < 100; ++turn) {
          graph.launch(stream);
          if (turn % 20 != 19) continue;
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
          early->check_waits();
          ASSERT_EQ(chain.last(), expected) << "turn " << turn;
          chain.poison();
          FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashoverlap
