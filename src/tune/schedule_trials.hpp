/// What the tuner measures to choose one of some schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashoverlap/plan_cache.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/tuner.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// How many schedules are measured where the likeliest takes this long: fewer of long runs, so that it takes
/// some seconds at most.
std::size_t trials_for(double predicted_us);

/// GPU memory that `measure_trials` takes on a rank.
std::int64_t measured_bytes(const Problem& problem, Reader reader, int rank,
                            const std::vector<Candidate>& trials);

struct MeasuredTrials {
  TunedPlan tuned{};
  std::vector<Trial> tried{};
};

/// The fastest, by the rules of `Tuner::tune`. `trials`: the likeliest first. Collective.
MeasuredTrials measure_trials(const GpuRank& gpu, const Problem& problem, Reader reader,
                              const std::vector<Candidate>& trials);

}  // namespace flashoverlap
