/// What transfers between these GPUs cost.
#pragma once

#include "flashoverlap/machine.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Fills `collectives`, `capped` and `during_gemm`, the last two also for callers' results,
/// `comm_multiprocessors` and `collective_slowdowns`. Collective; kernels are known.
void measure_collectives(const GpuRank& gpu, Machine& machine);

/// Fills `memory_gigabytes_per_second`, and `copy_engine`, `copy_slowdown`, `store` and
/// `block_store_gigabytes_per_second`, which stay empty without the peer access that the machine tells of.
/// Collective.
void measure_copies(const GpuRank& gpu, Machine& machine);

/// Fills `launch_microseconds` and `signal_microseconds`. Collective.
void measure_signals(const GpuRank& gpu, Machine& machine);

}  // namespace flashoverlap
