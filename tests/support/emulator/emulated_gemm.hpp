// One rank's tile list, run by the emulator with the kernels of a family.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/device/share_k.hpp"
#include "support/emulator/emulated_ranks.hpp"
#include "support/emulator/launch.hpp"

namespace flashoverlap::testing {

/// A rank's launch, with what the launcher allocates on GPUs.
class EmulatedGemm {
 public:
  EmulatedGemm(const EmulatedGemm&) = delete;
  EmulatedGemm& operator=(const EmulatedGemm&) = delete;
  virtual ~EmulatedGemm() = default;

  virtual emulator::Grid grid() const = 0;

  void run() { launch.run({grid()}); }

  /// What the kernel may use besides the ranks' memory.
  virtual void allow(emulator::Launch& /*launch*/) const {}

  /// What is zero between launches.
  bool counts_are_zero() const {
    return finished_ == 0 && shard_steps_ == 0 &&
           std::ranges::all_of(shard_units_,
                               [](const ShardUnits& units) { return units.taken == 0 && units.stored == 0; });
  }

  emulator::Launch launch;  ///< of this rank alone
  ExpiredWait expired{};
  std::vector<std::uint64_t> tile_times;

 protected:
  EmulatedGemm(const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed, const GemmOptions& options)
      : launch(seed),
        tile_times(plan.tiles.size()),
        tiles_(most_entries(plan)),
        rows_(resolve_row_map(plan)),
        signals_(resolve_signals(plan, ranks.memory(), options)),
        shards_(resolve_shards(plan, ranks.memory(), options.messages)),
        shard_units_(shards_.size()),
        arguments_(tile_list_arguments(plan, ranks.memory(), options)) {
    arguments_.tiles = tiles_.data();
    arguments_.row_map = rows_.data();
    arguments_.signals = signals_.data();
    arguments_.rank_counters = ranks.memory().counters.data();
    arguments_.finished = &finished_;
    arguments_.shards = shards_.data();
    arguments_.shard_units = shard_units_.data();
    arguments_.shard_steps = &shard_steps_;
    arguments_.expired = &expired;
    arguments_.tile_times = options.record_tiles ? tile_times.data() : nullptr;
    ranks.allow(launch);
  }

  std::vector<DeviceTile>& tiles() { return tiles_; }
  const TileListArguments& arguments() const { return arguments_; }

 private:
  std::vector<DeviceTile> tiles_;
  std::vector<DeviceRow> rows_;
  std::vector<DeviceSignal> signals_;
  std::uint32_t finished_ = 0;
  std::vector<DeviceShard> shards_;
  std::vector<ShardUnits> shard_units_;
  std::uint32_t shard_steps_ = 0;
  TileListArguments arguments_;
};

/// A compiled kernel, in a size for GPUs with this much shared memory for a block.
struct EmulatedKernel {
  KernelTile tile;
  int room_kib = 0;
  int shared_bytes = 0;
};

struct EmulatedFamily {
  const KernelFamily* kernels = nullptr;
  std::vector<EmulatedKernel> instances;
  /// By place among `instances`.
  std::unique_ptr<EmulatedGemm> (*gemm)(std::size_t instance, const Plan& plan, const EmulatedRanks& ranks,
                                        std::uint64_t seed, const GemmOptions& options) = nullptr;
};

EmulatedFamily emulated_sm80();
EmulatedFamily emulated_sm90();
/// Of tiles that follow a GEMM of another kernel.
EmulatedFamily emulated_exchange();

inline const KernelFamily* family_named(std::string_view name) {
  return &*std::ranges::find(kernel_families(), name, &KernelFamily::name);
}

}  // namespace flashoverlap::testing
