#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"

namespace flashoverlap {
namespace {

constexpr std::array sm80_tiles{
#define FLASHOVERLAP_TILE(rows, cols, depth, stages, roomy_depth, roomy_stages) KernelTile{rows, cols, 1},
#include "gemm/sm80/tiles.inc"
#undef FLASHOVERLAP_TILE
};

constexpr std::array sm90_tiles{
#define FLASHOVERLAP_TILE(rows, cols, cluster_rows) KernelTile{rows, cols, cluster_rows},
#include "gemm/sm90/tiles.inc"
#undef FLASHOVERLAP_TILE
};

/// Hopper's kernels use wgmma and the TMA, which no other GPU has. What is newer than the rest runs Ampere's
/// as PTX.
constexpr std::array families{KernelFamily{.name = "sm90",
                                           .first_compute_capability = 90,
                                           .last_compute_capability = 90,
                                           .step_depth = 64,
                                           .shares_k = true,
                                           .stores_aside = true,
                                           .tiles = sm90_tiles},
                              KernelFamily{.name = "sm80",
                                           .first_compute_capability = 80,
                                           .last_compute_capability = 999,
                                           .step_depth = 64,
                                           .tiles = sm80_tiles}};

/// What FLASHOVERLAP_KERNELS asks for.
std::optional<int> forced_compute_capability() {
  const char* const variable = std::getenv("FLASHOVERLAP_KERNELS");
  if (variable == nullptr) return std::nullopt;
  const std::string_view value = variable;
  int number = 0;
  const bool named = value.starts_with("sm");
  const auto [end, status] =
      std::from_chars(value.data() + (named ? 2 : 0), value.data() + value.size(), number);
  const bool is_known = std::ranges::any_of(families, [&](const KernelFamily& family) {
    return number >= family.first_compute_capability && number <= family.last_compute_capability;
  });
  require(named && status == std::errc{} && end == value.data() + value.size() && is_known,
          "FLASHOVERLAP_KERNELS", value, "must be an architecture that there are kernels for, such as sm80");
  return number;
}

}  // namespace

std::span<const KernelFamily> kernel_families() { return families; }

int kernel_compute_capability(int compute_capability) {
  static const std::optional<int> forced = forced_compute_capability();
  return forced.value_or(compute_capability);
}

const KernelFamily* kernel_family(int compute_capability) {
  const int asked = kernel_compute_capability(compute_capability);
  const auto* const found = std::ranges::find_if(families, [&](const KernelFamily& family) {
    return asked >= family.first_compute_capability && asked <= family.last_compute_capability;
  });
  return found == families.end() ? nullptr : found;
}

bool has_kernel(const KernelFamily& family, const Schedule& schedule) {
  return std::ranges::count(family.tiles, kernel_tile(schedule)) > 0;
}

}  // namespace flashoverlap
