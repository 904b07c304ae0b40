#include <algorithm>
#include <array>

#include "flashoverlap/kernels.hpp"

namespace flashoverlap {
namespace {

constexpr std::array sm90_tiles{
#define FLASHOVERLAP_TILE(rows, cols, cluster_rows) KernelTile{rows, cols, cluster_rows},
#include "gemm/sm90/tiles.inc"
#undef FLASHOVERLAP_TILE
};

constexpr std::array families{
    KernelFamily{.name = "sm90", .compute_capability = 90, .step_depth = 64, .tiles = sm90_tiles}};

}  // namespace

std::span<const KernelFamily> kernel_families() { return families; }

const KernelFamily* kernel_family(int compute_capability) {
  const auto* const family =
      std::ranges::find(families, compute_capability, &KernelFamily::compute_capability);
  return family == families.end() ? nullptr : family;
}

KernelTile kernel_tile(const Schedule& schedule) {
  return {schedule.tile_rows, schedule.tile_cols, schedule.cluster_rows};
}

bool has_kernel(const KernelFamily& family, const Schedule& schedule) {
  return std::ranges::count(family.tiles, kernel_tile(schedule)) > 0;
}

}  // namespace flashoverlap
