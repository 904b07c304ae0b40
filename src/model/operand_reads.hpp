/// What the order of a plan's tiles costs: reads, and power, which their multiplications then lack.
#pragma once

#include <span>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Bytes of A and B that this many workers read, a wave of tiles after the other, if the L2 cache holds
/// nothing of what earlier waves have read.
double operand_bytes(const Plan& plan, int workers);

/// What a GEMM that takes `gemm_us` else takes longer because its groups are so narrow that their waves read
/// more than those of a whole one, which the machine's kernels were measured with: the memory's time, and at
/// the power limit (`Machine::throttled`) that of slower clocks.
double narrow_groups_microseconds(const Plan& plan, const Machine& machine, int workers, double gemm_us);

/// Groups of a GEMM without a plan, which are `waves` together.
struct TileGroups {
  double waves = 0;
  Shape each{};            ///< rows and columns of tile entries
  bool same_rows = false;  ///< groups have the same rows of A, else the same ones of B
};

/// The same of a GEMM of these groups.
double narrow_groups_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                  std::span<const TileGroups> groups, double gemm_us);

}  // namespace flashoverlap
