/// The GPUs that measurements run on.
#pragma once

#include <string_view>

#include "cuda/properties.hpp"
#include "flashoverlap/machine.hpp"

namespace flashoverlap {

/// The number of this machine's GPUs. Throws `Error` where none can be used.
int count_gpus();

/// What the presets know of the current GPU's kind with this fabric, see `GpuRank`: what there is until it is
/// measured. Throws `InvalidArgument` where they know nothing of it.
Machine current_machine(std::string_view fabric);

}  // namespace flashoverlap
