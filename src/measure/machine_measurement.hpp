/// Turns these GPUs into a `Machine`.
#pragma once

#include <functional>
#include <string_view>

#include "flashoverlap/machine.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Measures every field; the same result on all ranks. Collective, at least 2 ranks. Takes 10 to 20 s.
/// `progress`: what is measured next, in order.
Machine measure_machine(const GpuRank& gpu, const std::function<void(std::string_view step)>& progress);

}  // namespace flashoverlap
