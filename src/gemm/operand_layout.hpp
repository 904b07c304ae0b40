#pragma once

#include <cstdint>

namespace flashoverlap {

/// How an operand lies in memory: its rows (of A[m,k] or B[n,k]) contiguous in k, or stored transposed, [k,m]
/// or [k,n].
enum class OperandLayout : std::uint8_t { k_contiguous, row_contiguous };

}  // namespace flashoverlap
