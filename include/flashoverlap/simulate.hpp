/// Discrete-event simulation of plans on a machine: latency and timeline. What is modelled:
/// docs/machine-model.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

enum class Lane { gemm, communication };

/// Something that takes time on one rank: a group of tiles, from the start of its first to the end of its
/// last; one message; or tiles that a group stores on peers without a pause.
struct Interval {
  int rank = 0;
  Lane lane = Lane::gemm;
  int group = 0;        ///< `none` where the message belongs to no group
  std::string label{};  ///< "group 2", "all_reduce 8.4 MB", "copy to rank 3 2.1 MB", "tiles to peers 8.4 MB"
  double start_us = 0;
  double end_us = 0;
};

struct Simulation {
  double latency_us = 0;             ///< until the slowest rank is done
  double gemm_us = 0;                ///< until the last tile of any rank is done
  std::vector<Interval> timeline{};  ///< by rank, lane, start
};

/// The plans of all ranks, which must be valid. Throws `InvalidArgument` if some are missing, if the machine
/// breaks a rule (`validate`) or if it cannot run them: copies or stores to peers without peer access, or
/// tiles that wait for collectives to which the GEMM leaves no multiprocessors. Does not ask whether there is
/// a kernel for them (`gpu_obstacle` does). Throws `InvalidPlan` where plans that are not valid cannot end.
Simulation simulate(std::span<const Plan> plans, const Machine& machine);

/// Only `Simulation::latency_us`, in less time.
double simulated_latency_us(std::span<const Plan> plans, const Machine& machine);

/// The same problem without overlap: the GEMM and the communication one after the other.
struct SequentialRun {
  double gemm_us = 0;
  double communication_us = 0;
  double total_us = 0;  ///< can exceed their sum: there is a launch between them
  bool communicates_first = false;
};

enum class TimelineSource : std::uint8_t { predicted, measured };

/// What a picture says about its timeline.
struct TimelineCaption {
  std::string title{};
  std::string subtitle{};
  TimelineSource source = TimelineSource::predicted;  ///< named before the title
  std::optional<SequentialRun> sequential{};          ///< drawn for comparison, with the speed-up over it
};

/// A picture: one row for each rank and lane, a colour for each group, a time axis in µs.
std::string timeline_svg(const Simulation& simulation, const TimelineCaption& caption);

/// The same for Perfetto or chrome://tracing (Trace Event Format). The sequential run is a process of its
/// own.
std::string chrome_trace(const Simulation& simulation, const TimelineCaption& caption);

}  // namespace flashoverlap
