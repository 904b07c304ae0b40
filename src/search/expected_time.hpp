/// What a schedule is expected to take, without making its plans: to choose those that are simulated.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// GEMM and communication one after the other, or the longer one and what a message makes the other wait.
/// `gemm`: of the rank with the most rows.
double expected_schedule_us(const Machine& machine, const Problem& problem, const Shape& gemm,
                            const Schedule& schedule);

}  // namespace flashoverlap
