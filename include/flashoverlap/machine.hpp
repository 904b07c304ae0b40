/// A machine as data: all that the simulator and the search know of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Time against size, which is bytes unless something else is said, as points in ascending order of size.
/// Linear between points; below the first point its time; beyond the last one the rate of the last two points
/// (proportional if there is only one). No size takes longer than a larger one: where a point says so, which
/// is the noise of a measurement, the time of the larger one holds.
struct Curve {
  struct Point {
    double size = 0;
    double microseconds = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points{};
  bool operator==(const Curve&) const = default;
  double microseconds(double size) const;
};

/// Curves by the number of ranks that take part at the same time.
using CurvesByRanks = std::map<int, Curve>;

/// For all_reduce, reduce_scatter, all_gather and exchange: time of the whole collective against the bytes
/// of the full matrix, which is what is reduced, gathered, or (exchange) what one rank sends and keeps.
using Collectives = std::map<MessageKind, CurvesByRanks>;

/// For the same four.
using Slowdowns = std::map<MessageKind, double>;

/// One kernel: the time of a wave of its tiles on all multiprocessors at full clocks, against k.
struct KernelCosts {
  KernelTile tile{};
  OperandLayout b_layout = OperandLayout::k_contiguous;
  Curve wave{};       ///< one of many
  Curve lone_wave{};  ///< of a GEMM that has no other: its blocks ask for the same rows at the same time
  bool operator==(const KernelCosts&) const = default;
};

struct Machine {
  std::string name{};
  /// Where each figure comes from: measured (machine, date), published, datasheet, or derived.
  std::vector<std::string> sources{};
  /// Of its GPUs: 10 · major + minor, 90 for Hopper. Says which kernels they run (`kernel_family`). 0: none.
  int compute_capability = 0;
  int multiprocessors = 0;
  /// Of the kernels that were measured.
  std::vector<KernelCosts> kernels{};
  /// For tiles of other kernels: main loops of all multiprocessors together, 16-bit operands.
  double teraflops = 0;
  double tile_microseconds = 0;  ///< and prologue and epilogue of a tile
  /// Where power limits the clocks: the time that the waves of a GEMM take, against the time that they would
  /// take at the clocks at which `kernels` or `teraflops` hold. In proportion below the first point.
  Curve throttled{};
  /// Tiles take this many times as long while copy engines or stores send what this rank sends,
  double copy_slowdown = 1;
  double store_slowdown = 1;
  /// or, by their cap on multiprocessors, collectives. Kinds that are missing, or all of them, slow nothing.
  std::map<int, Slowdowns> collective_slowdowns{};
  double gemm_launch_microseconds = 0;     ///< a GEMM besides its waves: launch, first loads, end
  double launch_microseconds = 0;          ///< from launch to first instruction of every transfer
  double signal_microseconds = 0;          ///< from the last raise to the start of what waited for it
  double memory_gigabytes_per_second = 0;  ///< read and written together by a copy within one GPU
  /// Multiprocessors that collectives, exchanges and copy blocks occupy at full speed. With a lower cap
  /// collectives and exchanges are slower in proportion, unless `during_gemm` says by how much, and stores as
  /// `block_store_gigabytes_per_second` says. Where the GEMM leaves fewer, they cannot run concurrently with
  /// it.
  int comm_multiprocessors = 0;
  bool peer_access = false;   ///< `copy` and `store` need it
  Collectives collectives{};  ///< of all four kinds, with the GPUs to themselves
  /// By their cap on multiprocessors: with the GPUs to themselves, and while a GEMM occupies all other
  /// multiprocessors. Both may lack kinds and be empty.
  std::map<int, Collectives> capped{};
  std::map<int, Collectives> during_gemm{};
  /// The same of those kinds that take longer where the result is the caller's memory, which NCCL does not
  /// share among GPUs. Without a cap no kind does.
  std::map<int, Collectives> capped_for_callers{};
  std::map<int, Collectives> during_gemm_for_callers{};
  CurvesByRanks copy_engine{};  ///< one copy to one peer while all ranks copy, each to one peer at a time
  CurvesByRanks store{};        ///< the same by stores from as many multiprocessors as fill the link
  /// What each of a few multiprocessors stores in memory of peers. 0: not known, then few are as fast as
  /// many.
  double block_store_gigabytes_per_second = 0;
  bool operator==(const Machine&) const = default;

  /// For a world size r between two measured ones: between their times for the same matrix, in proportion to
  /// (r−1)/r, the part of it that each rank moves. Beyond them the time that the last one takes when each
  /// rank moves the same number of bytes.
  double collective_microseconds(MessageKind kind, int ranks, double bytes) const;

  /// One copy or store to a peer. Between measured world sizes likewise, beyond them as at the last one.
  double copy_microseconds(int ranks, double bytes) const;
  double store_microseconds(int ranks, double bytes) const;
};

/// `Machine::collective_microseconds` for other curves than those of `Machine::collectives`, which must have
/// some of this kind.
double collective_microseconds(const Collectives& collectives, MessageKind kind, int ranks, double bytes);

/// The machine as operators see it whose results are the caller's memory: with the curves for callers in
/// place of the others.
Machine with_results_of_callers(Machine machine);

/// Throws `InvalidArgument` with the field ("collectives.all_reduce.2[1]"), its value and the rule: times,
/// rates and counts are positive and finite; points are in ascending order, and the last step takes time; all
/// four collectives are there; copy_engine and store are there exactly if there is peer access.
void validate(const Machine& machine);

/// "h200-nvlink", "h200-pcie", "h100-nvlink", "h100-pcie", "a100", "a800", "l40s", "rtx3090", "rtx4090".
std::vector<std::string> preset_names();
/// Throws `InvalidArgument` with the names that there are.
Machine preset(std::string_view name);

/// Raised whenever the format changes; other versions are refused.
inline constexpr int machine_schema_version = 8;

/// As JSON. Reading is as strict as for plans, and validates.
std::string machine_to_json(const Machine& machine);
Machine machine_from_json(std::string_view text);

}  // namespace flashoverlap
