/// A machine as data: what the simulator and the search need to know of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Time against size: points in ascending order of bytes; linear between points, the first time below the
/// first point, the last two points' bandwidth beyond the last (proportional where there is only one).
struct Curve {
  struct Point {
    double bytes = 0;
    double microseconds = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points{};
  bool operator==(const Curve&) const = default;
  double microseconds(double bytes) const;
};

/// Curves by the number of ranks that take part at the same time.
using CurvesByRanks = std::map<int, Curve>;

struct Machine {
  std::string name{};
  std::vector<std::string> sources{};  ///< where each figure comes from: measured (machine, date), published,
                                       ///< datasheet, or derived
  int multiprocessors = 0;
  double teraflops = 0;            ///< main loops of all multiprocessors together, 16-bit operands
  double tile_microseconds = 0;    ///< what a tile costs beside its main loop: prologue and epilogue
  double launch_microseconds = 0;  ///< from launch to first instruction, for the GEMM and for every transfer
  double signal_microseconds = 0;  ///< from the last raise to the start of what waited for it
  double memory_gigabytes_per_second = 0;  ///< a copy within one GPU reads and writes at this rate together
  /// That collectives, exchanges and stores by copy blocks occupy while they run at full speed. With a lower
  /// cap collectives and exchanges are slower in proportion; where the GEMM leaves them less, they cannot run
  /// beside it.
  int comm_multiprocessors = 0;
  bool peer_access = false;  ///< `copy` and `store` need it
  /// all_reduce, reduce_scatter, all_gather, exchange → time of the whole collective against the bytes of the
  /// full matrix: what is reduced, gathered, or (exchange) what one rank sends and keeps.
  std::map<MessageKind, CurvesByRanks> collectives{};
  CurvesByRanks copy_engine{};  ///< one copy to one peer while all ranks copy, each to one peer at a time
  CurvesByRanks store{};        ///< the same by stores from multiprocessors
  bool operator==(const Machine&) const = default;

  /// For a world size that was not measured: the time that the nearest one takes for the size at which each
  /// rank moves as many bytes, 2(r−1)/r of the matrix for all_reduce and (r−1)/r for the others.
  double collective_microseconds(MessageKind kind, int ranks, double bytes) const;

  /// One copy or store to a peer, by the curve of the nearest world size.
  double copy_microseconds(int ranks, double bytes) const;
  double store_microseconds(int ranks, double bytes) const;
};

/// Throws `InvalidArgument` naming the field ("collectives.all_reduce.2[1]"), its value and the rule: times,
/// rates and counts are positive and finite, points in ascending order with a last step that takes time, all
/// four collectives there, copy_engine and store exactly where there is peer access.
void validate(const Machine& machine);

/// "h200-nvlink", "h200-pcie", "a800", "rtx4090".
std::vector<std::string> preset_names();
/// Throws `InvalidArgument` listing the names.
Machine preset(std::string_view name);

/// Raised whenever the format changes; other versions are refused.
inline constexpr int machine_schema_version = 1;

/// JSON, strict like plans, and checked.
std::string machine_to_json(const Machine& machine);
Machine machine_from_json(std::string_view text);

}  // namespace flashoverlap
