/// What the order of a plan's tiles costs: power, which their multiplications then lack.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Bytes of A and B that this many workers read, a wave of tiles after the other, if the L2 cache holds
/// nothing of what earlier waves have read.
double operand_bytes(const Plan& plan, int workers);

/// What the GEMM takes longer at the power limit (`Machine::throttled`) because its groups are so narrow that
/// their waves read more than those of a whole GEMM, which the machine's kernels were measured with.
double narrow_groups_microseconds(const Plan& plan, const Machine& machine, int workers);

/// The same without a plan, of a GEMM in this many waves, where a group has these rows and columns of tile
/// entries.
double narrow_groups_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                  std::int64_t waves, const Shape& group);

}  // namespace flashoverlap
