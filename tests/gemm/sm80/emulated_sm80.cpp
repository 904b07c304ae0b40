#include "gemm/sm80/kernel.cuh"
#include "gemm/sm80/resolve_arguments.hpp"
#include "support/emulator/emulated_gemm.hpp"

namespace flashoverlap::testing {
namespace {

using Finder = sm80::Kernel (*)(DataType, OperandLayout, OperandLayout);

struct Line {
  KernelTile tile;
  int room_kib;
  Finder find;
};

/// Both sizes of each line of the table.
constexpr std::array lines{
#define FLASHOVERLAP_TILE(rows, cols, depth, stages, roomy_depth, roomy_stages) \
  Line{{rows, cols, 1}, 99, sm80::find_kernel<rows, cols, depth, stages>},      \
      Line{{rows, cols, 1}, 163, sm80::find_kernel<rows, cols, roomy_depth, roomy_stages>},
#include "gemm/sm80/tiles.inc"
#undef FLASHOVERLAP_TILE
};

class EmulatedSm80 final : public EmulatedGemm {
 public:
  EmulatedSm80(const sm80::Kernel& kernel, const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
               const GemmOptions& options)
      : EmulatedGemm(plan, ranks, seed, options),
        kernel_(kernel),
        blocks_(launched_workers(plan, arguments())),
        destinations_(resolve_destinations(ranks.memory())) {
    resolve_tiles(plan, ranks.memory(), options, tiles());
    static_cast<TileListArguments&>(arguments_) = arguments();
    sm80::resolve_matrices(plan, ranks.memory(), arguments_);
    arguments_.destinations = destinations_.data();
  }

  emulator::Grid grid() const override {
    const auto kernel = reinterpret_cast<void (*)(sm80::GemmArguments)>(const_cast<void*>(kernel_.function));
    return {blocks_, 1, kernel_.threads, static_cast<std::size_t>(kernel_.shared_bytes),
            [this, kernel] { kernel(arguments_); }};
  }

 private:
  sm80::Kernel kernel_;
  int blocks_;
  std::vector<Destination> destinations_;
  sm80::GemmArguments arguments_{};
};

}  // namespace

EmulatedFamily emulated_sm80() {
  EmulatedFamily family{.kernels = family_named("sm80")};
  constexpr OperandLayout k = OperandLayout::k_contiguous;
  for (const Line& line : lines)
    family.instances.push_back({line.tile, line.room_kib, line.find(DataType::bf16, k, k).shared_bytes});
  family.gemm = [](std::size_t instance, const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
                   const GemmOptions& options) -> std::unique_ptr<EmulatedGemm> {
    const Problem& problem = plan.problem;
    const sm80::Kernel kernel =
        lines.at(instance).find(problem.data_type, problem.a_layout, problem.b_layout);
    return std::make_unique<EmulatedSm80>(kernel, plan, ranks, seed, options);
  };
  return family;
}

}  // namespace flashoverlap::testing
