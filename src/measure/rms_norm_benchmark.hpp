#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct RmsNormBenchmark {
  bool residual = false;  ///< also adds a residual and writes the sum
  int repetitions = 15;
};

/// The median time in µs of one RMSNorm of each plan's result. All results have the same shape. They are
/// random and rotate among sets that together exceed the L2 cache; every plan is timed once in each
/// repetition.
std::vector<double> measure_rms_norm(const RmsNormBenchmark& benchmark, const std::vector<Plan>& plans);

}  // namespace flashoverlap
