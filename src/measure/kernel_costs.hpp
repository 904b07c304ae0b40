/// What GEMM kernels cost on these GPUs.
#pragma once

#include "flashoverlap/machine.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Fills `kernels`, `teraflops`, `tile_microseconds`, `throttled` and `gemm_launch_microseconds`. Collective.
void measure_kernels(const GpuRank& gpu, Machine& machine);

}  // namespace flashoverlap
