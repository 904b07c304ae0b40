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
#include "support/tile_reference.hpp"

namespace flashoverlap {
namespace {

using testing::Element;

constexpr int links = 16;

std::unique_ptr<GemmKernel> make_kernel(const Plan& plan, const DeviceArray<Element>& a,
                                        const DeviceArray<Element>& b, const DeviceArray<Element>& out,
                                        const DeviceArray<std::uint32_t>& counters, bool begins_early) {
  GemmMemory memory{.buffers = {{}}, .counters = {counters.data()}};
  const auto describe = [&](BufferRole role, Element* base) {
    const Buffer& buffer = plan.buffer(role);
    memory.buffers[0][static_cast<std::size_t>(role)] = {base, buffer.rows, buffer.cols, buffer.cols};
  };
  describe(BufferRole::a, a.data());
  describe(BufferRole::b, b.data());
  describe(BufferRole::out, out.data());
  return make_gemm_kernel(plan, memory,
                          {.counts = false, .begins_early = begins_early, .b_is_constant = begins_early});
}

/// Square B, so that a result can be the next A.
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
        b_values_(random_matrix(DataType::bf16, n, n, seed)),
        first_values_(random_matrix(DataType::bf16, m, n, seed + 1)),
        b_(testing::upload(b_values_)),
        first_(testing::upload(first_values_)) {
    for (DeviceArray<Element>& result : results_) result = DeviceArray<Element>(first_.size());
  }

  /// Early ones load B, which no kernel of the chain writes, before the one before has ended.
  std::unique_ptr<GemmKernel> kernel(bool begins_early) {
    return make_kernel(plans_[0], first_, b_, results_[0], counters_, begins_early);
  }

  void launch(GemmKernel& kernel, int link, cudaStream_t stream) {
    kernel.rebind(BufferRole::a, link == 0 ? first_.data() : results_[(link + 1) % 2].data());
    kernel.rebind(BufferRole::out, results_[link % 2].data());
    kernel.launch(stream);
  }

  void poison(cudaStream_t stream) {
    for (DeviceArray<Element>& result : results_) {
      FLASHOVERLAP_CUDA(cudaMemsetAsync(result.data(), 0xFF, result.size() * sizeof(Element), stream));
    }
  }
  /// Once all has happened.
  Matrix result(int link) const {
    return testing::download(DataType::bf16, plans_[0].buffer(BufferRole::out), results_[link % 2]);
  }
  Matrix last() const { return result(links - 1); }
  /// The latest link's result, of what that of the link before is.
  void expect_right(int link) const {
    const Matrix& a = link == 0 ? first_values_ : result(link - 1);
    testing::expect_rounded_once(deviation(result(link), testing::product(plans_[0].problem, a, b_values_)),
                                 DataType::bf16);
  }

 private:
  std::vector<Plan> plans_;
  Matrix b_values_;
  Matrix first_values_;
  DeviceArray<Element> b_;
  DeviceArray<Element> first_;
  std::array<DeviceArray<Element>, 2> results_;
  DeviceArray<std::uint32_t> counters_{64};
};

TEST(EarlyLaunch, AChainOfKernelsGivesTheBitsOfKernelsOneAtATime) {
  const KernelFamily& family = *kernel_family(90);
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : family.tiles) {
    for (const bool shares : {false, true}) {
      if (shares && !family.shares_k) continue;
      for (const std::int64_t m : {16, 200}) {
        ++own_seed;
        SCOPED_TRACE(
            fmt::format("m {} tile {}x{}/{} shares {}", m, tile.rows, tile.cols, tile.cluster_rows, shares));
        Chain chain(m, 1536, tile, shares, own_seed);
        const CudaStream stream;
        const auto alone = chain.kernel(/*begins_early=*/false);
        chain.poison(stream);
        for (int link = 0; link < links; ++link) {
          chain.launch(*alone, link, stream);
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
          if (link == 0 || link == links - 1) chain.expect_right(link);
        }
        alone->check_waits(stream);
        const Matrix expected = chain.last();

        const auto early = chain.kernel(/*begins_early=*/true);
        const CudaGraph graph(stream, [&] {
          for (int link = 0; link < links; ++link) chain.launch(*early, link, stream);
        });
        for (int turn = 0; turn < 100; ++turn) {
          chain.poison(stream);
          graph.launch(stream);
          if (turn % 20 != 19) continue;
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
          early->check_waits(stream);
          ASSERT_TRUE(chain.last() == expected) << "turn " << turn;
        }
      }
    }
  }
}

/// A long GEMM writes what the last of three takes for a constant B; the one between them does not.
TEST(EarlyLaunch, WhatAllButTheLastKernelWroteIsThereInAConstantB) {
  constexpr std::int64_t extent = 128;
  constexpr std::int64_t long_k = 1 << 18;
  const auto plan_of = [](std::int64_t k) {
    return make_plans(
               {.m = extent, .n = extent, .k = k, .data_type = DataType::bf16},
               {.strategy = Strategy::sequential, .tile_rows = 128, .tile_cols = 128, .multiprocessors = 132})
        .front();
  };
  const Plan long_plan = plan_of(long_k);
  const Plan short_plan = plan_of(extent);
  constexpr Element one = 0x3F80;
  const std::vector<Element> ones(extent * long_k, one);
  std::vector<Element> unit(extent * extent);
  for (std::size_t row = 0; row < extent; ++row) unit[row * (extent + 1)] = one;
  const DeviceArray<Element> factor{std::span<const Element>(ones)};
  const DeviceArray<Element> identity{std::span<const Element>(unit)};
  DeviceArray<Element> constant(unit.size());
  const DeviceArray<Element> other(unit.size());
  DeviceArray<Element> result(unit.size());
  const DeviceArray<std::uint32_t> counters(64);
  const auto writer = make_kernel(long_plan, factor, factor, constant, counters, /*begins_early=*/true);
  const auto between = make_kernel(short_plan, identity, identity, other, counters, /*begins_early=*/true);
  const auto reader = make_kernel(short_plan, identity, constant, result, counters, /*begins_early=*/true);
  const Matrix expected = [&] {
    const CudaStream stream;
    writer->launch(stream);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    return testing::download(DataType::bf16, short_plan.buffer(BufferRole::out), constant);
  }();
  float first = 0;
  expected.read(0, 0, {&first, 1});
  EXPECT_EQ(first, static_cast<float>(long_k));
  const CudaStream stream;
  for (int turn = 0; turn < 50; ++turn) {
    constant.set_bytes(0);
    result.set_bytes(0xFF);
    FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    writer->launch(stream);
    between->launch(stream);
    reader->launch(stream);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    // All elements are the same, so that a product with the identity is the matrix itself.
    ASSERT_TRUE(testing::download(DataType::bf16, short_plan.buffer(BufferRole::out), result) == expected)
        << "turn " << turn;
  }
}

}  // namespace
}  // namespace flashoverlap
