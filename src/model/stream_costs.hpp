/// What runs take longer because streams pass work to each other, and ranks wait for each other. Counted in
/// signals (`Machine::signal_microseconds`), of which each such step has some.
#pragma once

#include <span>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// What a collective takes by `Strategy::sequential`, between GEMMs of `gemm_us`, if it takes `alone_us` by
/// itself: ranks do not end their GEMMs together, and NCCL's kernels find the clocks that these have left.
double between_gemms_microseconds(const Machine& machine, MessageKind kind, double alone_us, double gemm_us);

/// From the end of one collective to the begin of the next one by `Strategy::signal`, besides its launch.
double group_pause_microseconds(const Machine& machine, const Schedule& schedule);

/// What passes at the end of a run until its streams have met, where operations that communicate after the
/// GEMM do so on streams of their own; what tiles store has none. Operations that communicate first wait for
/// the other ranks' streams before.
double streams_meet_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule);

/// What sums by `Strategy::store` that go to all ranks take longer in rounds: those of one go while the next
/// is computed, and who needs them waits.
double rounds_meet_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule);

/// What it takes to copy what peers write of a result to the caller's memory.
double result_copy_microseconds(const Machine& machine, std::span<const Plan> plans);

/// What a run takes less that follows another one of the same operator at once, as in benchmarks: where it is
/// one kernel, it begins while that one ends, unless that one's result is copied.
double begun_before_microseconds(const Machine& machine, std::span<const Plan> plans);

}  // namespace flashoverlap
