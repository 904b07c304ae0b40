#include "gemm/exchange/kernel.cuh"
#include "gemm/exchange/resolve_arguments.hpp"
#include "support/emulator/emulated_gemm.hpp"

namespace flashoverlap::testing {
namespace {

class EmulatedExchange final : public EmulatedGemm {
 public:
  EmulatedExchange(const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
                   const GemmOptions& options)
      : EmulatedGemm(plan, ranks, seed, options),
        destinations_(resolve_destinations(ranks.memory())),
        arguments_(exchange::resolve_arguments(plan, ranks.memory(), arguments())),
        data_type_(plan.problem.data_type) {
    resolve_tiles(plan, ranks.memory(), options, tiles());
    arguments_.destinations = destinations_.data();
  }

  emulator::Grid grid() const override {
    constexpr int blocks = 5;
    const auto kernel = data_type_ == DataType::bf16 ? exchange::exchange_kernel<__nv_bfloat16>
                                                     : exchange::exchange_kernel<__half>;
    return {.blocks = blocks, .cluster = 1, .threads = exchange::threads, .kernel = [this, kernel] {
              kernel(arguments_);
            }};
  }

 private:
  std::vector<Destination> destinations_;
  exchange::ExchangeArguments arguments_;
  DataType data_type_;
};

}  // namespace

EmulatedFamily emulated_exchange() {
  EmulatedFamily family{.kernels = family_named("sm80")};
  for (const KernelTile& tile : family.kernels->tiles) family.instances.push_back({tile});
  family.gemm = [](std::size_t /*instance*/, const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
                   const GemmOptions& options) -> std::unique_ptr<EmulatedGemm> {
    return std::make_unique<EmulatedExchange>(plan, ranks, seed, options);
  };
  return family;
}

}  // namespace flashoverlap::testing
