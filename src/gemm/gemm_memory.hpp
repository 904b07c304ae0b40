#pragma once

#include <array>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/kernel_messages.hpp"

/// What a plan's GEMM works on, and how.
namespace flashoverlap {

/// A row-major matrix in GPU memory, of this GPU or a peer.
struct DeviceMatrix {
  void* base = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t pitch = 0;  ///< elements from row to row
};

/// Memory that a plan's GEMM works on, shaped as each rank's plan says; all of it belongs to the caller.
struct GemmMemory {
  /// [rank][role]: this rank's buffers, and those of peers that it stores to; null where it has no business.
  /// Of this rank, a, b and out may be null with their shape: `GemmKernel::rebind` names their memory later.
  std::vector<std::array<DeviceMatrix, buffer_count>> buffers;
  /// [rank]: the first of each rank's counters, zero at the start of a run.
  std::vector<std::uint32_t*> counters;
  /// `share_bytes` of the plan, all bits set, as a launch leaves them; for any number of GEMMs that never run
  /// at the same time. Null: the kernel brings its own.
  std::byte* shares = nullptr;
};

struct GemmOptions {
  /// Whether tiles wait for counters and raise them. Off where the order of the stream implies every wait.
  bool counts = true;
  std::uint64_t wait_limit_ns = 10'000'000'000;
  /// A word of the host's memory, set (not to 0) when a wait has lasted half the limit; or null.
  std::uint32_t* long_wait = nullptr;
  /// Made by the launch itself.
  KernelMessages messages{};
  bool record_tiles = false;  ///< for `GemmKernel::tile_times`
  /// A launch may begin before the kernel before it on the stream has ended, and awaits that before it reads
  /// or writes anything. The next one may begin early, too, and take multiprocessors that are free: not for
  /// plans whose messages may need them.
  bool begins_early = false;
  /// The kernel before does not write B: a kernel that begins early loads it before that one has ended.
  bool b_is_constant = false;
};

}  // namespace flashoverlap
