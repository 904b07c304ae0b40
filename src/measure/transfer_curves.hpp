/// What transfers between these GPUs cost.
#pragma once

#include "flashoverlap/machine.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Fills `collectives`, `capped`, `during_gemm`, `comm_multiprocessors` and `collective_slowdowns`.
/// Collective; kernels are known.
void measure_collectives(const GpuRank& gpu, Machine& machine);

/// Fills `copy_engine`, `copy_slowdown`, `store` and `memory_gigabytes_per_second`. Collective; without peer
/// access, which the machine says, only the last.
void measure_copies(const GpuRank& gpu, Machine& machine);

/// Fills `launch_microseconds` and `signal_microseconds`. Collective.
void measure_signals(const GpuRank& gpu, Machine& machine);

}  // namespace flashoverlap
