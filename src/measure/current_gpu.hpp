/// The GPUs that measurements run on.
#pragma once

#include "cuda/properties.hpp"
#include "flashoverlap/machine.hpp"

namespace flashoverlap {

/// The number of this machine's GPUs. Throws `Error` where none can be used.
int count_gpus();

/// What the presets know of the current GPU's kind: what there is until it is measured. Throws
/// `InvalidArgument` where they know nothing of it.
Machine current_machine(bool peer_access);

}  // namespace flashoverlap
