#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Rows of the operand A that a rank multiplies, and where its tiles read them.
struct GatheredRows {
  std::int32_t row = 0;
  std::int32_t rows = 0;
  BufferRole buffer = BufferRole::a;  ///< `a` where a rank's own rows stay, or `gathered`
  std::int32_t buffer_row = 0;
  bool operator==(const GatheredRows&) const = default;
};

/// All rows of A, in order, as few entries as there can be. `plan` gathers or exchanges A by rows, whole
/// ones: groups of rows that a collective gathers lie in the order of their arrival.
std::vector<GatheredRows> gathered_rows(const Plan& plan);

/// Whether the buffer `gathered` has all rows that are not this rank's own at their places.
bool are_in_place(const std::vector<GatheredRows>& rows);

}  // namespace flashoverlap
