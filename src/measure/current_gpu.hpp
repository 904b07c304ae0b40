/// The GPUs that measurements run on.
#pragma once

#include "flashoverlap/kernels.hpp"

namespace flashoverlap {

/// The number of this machine's GPUs. Throws `Error` where none can be used.
int count_gpus();

/// The kernels that the current GPU runs. Throws `InvalidArgument` where there are none.
const KernelFamily& current_kernel_family();

}  // namespace flashoverlap
