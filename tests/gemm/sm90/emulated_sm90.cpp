#include <bit>

#include "gemm/device/share_k.hpp"
#include "gemm/sm90/kernel.cuh"
#include "gemm/sm90/resolve_arguments.hpp"
#include "gemm/sm90/tensor_map.hpp"
#include "plan/message_rules.hpp"
#include "support/emulator/emulated_gemm.hpp"

namespace flashoverlap {

// What kernels take the address of.
unsigned char sm90::memory[1];

// The driver's part.
CUtensorMap sm90::tensor_map(DataType, const DeviceMatrix& matrix, int box_rows, int matrices) {
  return {.base = static_cast<std::byte*>(matrix.base),
          .rows = matrix.rows / matrices,
          .cols = matrix.cols,
          .pitch = matrix.pitch,
          .matrices = matrices,
          .box_rows = box_rows};
}

namespace testing {
namespace {

using Finder = sm90::Kernel (*)(DataType, const sm90::Layouts&);

constexpr std::array lines{
#define FLASHOVERLAP_TILE(rows, cols, cluster_rows) \
  std::pair<KernelTile, Finder>{{rows, cols, cluster_rows}, sm90::find_kernel<rows, cols, cluster_rows>},
#include "gemm/sm90/tiles.inc"
#undef FLASHOVERLAP_TILE
};

class EmulatedSm90 final : public EmulatedGemm {
 public:
  EmulatedSm90(const sm90::Kernel& kernel, const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
               const GemmOptions& options)
      : EmulatedGemm(plan, ranks, seed, options),
        kernel_(kernel),
        cluster_rows_(plan.schedule.cluster_rows),
        blocks_(launched_workers(plan, arguments()) * cluster_rows_) {
    const std::vector<sm90::RaggedTile> ragged = sm90::ragged_tiles(plan);
    const sm90::Boxes boxes = sm90::boxes_of(plan, ragged, kernel.stored_rows);
    static_cast<TileListArguments&>(arguments_) = arguments();
    sm90::resolve_matrices(plan, ranks.memory(), boxes, arguments_);
    destinations_ = sm90::resolve_destinations(boxes, ranks.memory());
    arguments_.out = destinations_[static_cast<std::size_t>(arguments_.out_index)];
    arguments_.destinations = destinations_.data();
    shares_.assign(share_bytes(plan) / sizeof(float), std::bit_cast<float>(~0u));
    if (plan.schedule.share_k)
      sm90::resolve_shares(plan, reinterpret_cast<std::byte*>(shares_.data()), arguments_);
    sm90::resolve_tiles(plan, ragged, ranks.memory(), options, boxes, tiles(), arguments_);
    allow(launch);
  }

  void allow(emulator::Launch& launched) const final {
    launched.allow(shares_.data(), shares_.size() * sizeof(float));
  }

  emulator::Grid grid() const override {
    const auto kernel = reinterpret_cast<void (*)(sm90::GemmArguments)>(const_cast<void*>(kernel_.function));
    return {blocks_, sm90::cluster_blocks(arguments_, cluster_rows_), kernel_.threads,
            static_cast<std::size_t>(kernel_.shared_bytes), [this, kernel] { kernel(arguments_); }};
  }

 private:
  sm90::Kernel kernel_;
  int cluster_rows_;
  int blocks_;
  std::vector<sm90::Destination> destinations_;
  std::vector<float> shares_;
  sm90::GemmArguments arguments_{};
};

}  // namespace

EmulatedFamily emulated_sm90() {
  EmulatedFamily family{.kernels = family_named("sm90")};
  for (const auto& [tile, find] : lines)
    family.instances.push_back({tile, 227, find(DataType::bf16, {}).shared_bytes});
  family.gemm = [](std::size_t instance, const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
                   const GemmOptions& options) -> std::unique_ptr<EmulatedGemm> {
    const Problem& problem = plan.problem;
    const sm90::Kernel kernel = lines.at(instance).second(
        problem.data_type, {problem.a_layout, problem.b_layout, blocks_of_b(problem) > 1});
    return std::make_unique<EmulatedSm90>(kernel, plan, ranks, seed, options);
  };
  return family;
}

}  // namespace testing
}  // namespace flashoverlap
