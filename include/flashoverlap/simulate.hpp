/// Discrete-event simulation of plans on a machine: latency and timeline. What is modelled:
/// docs/machine-model.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

enum class Lane { gemm, communication };

/// Something that took time on one rank: a group of tiles, from its first start to its last end, or one
/// message.
struct Interval {
  int rank = 0;
  Lane lane = Lane::gemm;
  int group = 0;        ///< `none` where the message belongs to no group
  std::string label{};  ///< "group 2", "all_reduce 8.4 MB", "copy to rank 3 2.1 MB"
  double start_us = 0;
  double end_us = 0;
};

struct Simulation {
  double latency_us = 0;             ///< until the slowest rank is done
  double gemm_us = 0;                ///< until the last tile of any rank is done
  std::vector<Interval> timeline{};  ///< by rank, lane, start
};

/// The plans must be valid. Throws `InvalidArgument` if the machine cannot run them: copies or stores to
/// peers without peer access, or tiles that wait for collectives to which the GEMM leaves no multiprocessors.
Simulation simulate(std::span<const Plan> plans, const Machine& machine);

/// A picture of it: one row per rank and lane, a colour per group, a time axis in µs.
std::string timeline_svg(const Simulation& simulation, const std::string& title);

/// The same for Perfetto or chrome://tracing (Trace Event Format).
std::string chrome_trace(const Simulation& simulation, const std::string& title);

}  // namespace flashoverlap
