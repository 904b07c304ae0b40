/// The GEMM kernels that exist, as data: which tiles a schedule may ask for, and which GPUs run them.
#pragma once

#include <span>
#include <string_view>

#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// A compiled kernel: the tile of C that one thread block computes, and the thread blocks of a cluster, whose
/// tiles lie below each other. Names `Schedule::tile_rows`, `tile_cols` and `cluster_rows`.
struct KernelTile {
  int rows = 128;
  int cols = 256;
  int cluster_rows = 1;
  bool operator==(const KernelTile&) const = default;
};

/// Kernels that are one method and differ in their tiles: "sm90" for Hopper, "sm80" for all other GPUs since
/// Ampere.
struct KernelFamily {
  std::string_view name{};
  int first_compute_capability = 0;  ///< of the GPUs that run it: 10 · major + minor, 90 for Hopper
  int last_compute_capability = 0;
  int step_depth = 0;     ///< columns of k that a tile multiplies at a time, or a multiple of them
  bool shares_k = false;  ///< workers can do what `Schedule::share_k` says
  /// Kernels store what ranks gather while they multiply. Others do so before.
  bool stores_aside = false;
  std::span<const KernelTile> tiles{};
};

/// Every family that is compiled into the library or could be: the list is the same in builds without CUDA.
std::span<const KernelFamily> kernel_families();

/// The compute capability of the GPUs whose kernels a GPU of this one runs: its own, unless the environment
/// variable FLASHOVERLAP_KERNELS names another, such as "sm80", for tests. Throws `InvalidArgument` where it
/// names none.
int kernel_compute_capability(int compute_capability);

/// The family for GPUs of a compute capability; null where no kernel runs on them. With FLASHOVERLAP_KERNELS
/// that of the GPUs that it names.
const KernelFamily* kernel_family(int compute_capability);

/// The kernel that a schedule asks for. There may be none like it: `has_kernel`.
inline KernelTile kernel_tile(const Schedule& schedule) {
  return {schedule.tile_rows, schedule.tile_cols, schedule.cluster_rows};
}
bool has_kernel(const KernelFamily& family, const Schedule& schedule);

}  // namespace flashoverlap
