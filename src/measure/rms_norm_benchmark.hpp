#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct RmsNormBenchmark {
  bool residual = false;  ///< also adds a residual and writes the sum
  int repetitions = 15;
};

/// Microseconds of one RMSNorm of the result of each plan, all of the same shape: random results, rotated
/// among sets that together exceed the L2 cache; every plan once in each repetition. Medians.
std::vector<double> measure_rms_norm(const RmsNormBenchmark& benchmark, const std::vector<Plan>& plans);

}  // namespace flashoverlap
