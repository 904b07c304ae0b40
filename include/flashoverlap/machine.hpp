/// A machine as data: what the simulator and the search need to know of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Time against size: points in ascending order of bytes; linear between points, the first time below the
/// first point, the last two points' bandwidth beyond the last.
struct Curve {
  struct Point {
    double bytes = 0;
    double microseconds = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points;
  bool operator==(const Curve&) const = default;
  double microseconds(double bytes) const;
};

struct Machine {
  std::string name;
  std::vector<std::string>
      sources;  ///< where each figure comes from: measured (machine, date), published, or derived
  int multiprocessors = 0;
  double teraflops = 0;            ///< dense rate of a full GPU on large GEMMs, 16-bit operands
  double tile_microseconds = 0;    ///< prologue and epilogue that a tile adds
  double launch_microseconds = 0;  ///< from launch to first instruction, and per collective call
  double signal_microseconds = 0;  ///< from the last raise to the start of what waited for it
  int comm_multiprocessors = 0;    ///< that collectives take while they run
  bool peer_access = false;        ///< `copy` and `store` need it
  /// all_reduce, reduce_scatter, all_gather, exchange → world size → time of the whole collective against the
  /// bytes of the full matrix (sum of all ranks' parts for exchange: the bytes one rank sends or keeps).
  std::map<MessageKind, std::map<int, Curve>> collectives;
  Curve copy_engine;  ///< one copy to one peer while all ranks copy
  Curve store;        ///< the same by stores from multiprocessors
  bool operator==(const Machine&) const = default;

  /// The curve for a world size that was not measured is scaled from the nearest one that was, by the bytes
  /// each rank must move: 2(r−1)/r for all_reduce, (r−1)/r for the others.
  double collective_microseconds(MessageKind kind, int ranks, double bytes) const;
};

/// "h200-nvlink", "h200-pcie", "a800", "rtx4090".
std::vector<std::string> preset_names();
/// Throws `InvalidArgument` listing the names.
Machine preset(std::string_view name);

/// JSON, strict like plans.
std::string machine_to_json(const Machine& machine);
Machine machine_from_json(std::string_view text);

}  // namespace flashoverlap
