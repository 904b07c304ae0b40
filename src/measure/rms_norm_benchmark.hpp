#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The median time in µs of one RMSNorm of each plan's result. All results have the same shape. They are
/// random and rotate among sets that together exceed the L2 cache; every plan is timed once in each
/// repetition. `with_residual`: each also adds a residual and writes the sum.
std::vector<double> measure_rms_norm(const std::vector<Plan>& plans, bool with_residual, int repetitions);

}  // namespace flashoverlap
