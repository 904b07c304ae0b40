#pragma once

#include <cstddef>
#include <span>

namespace flashoverlap {

/// A schedule that was measured together with others.
struct Finalist {
  double us = 0;
  bool is_one_kernel = false;  ///< a run is one launch, in place of a call for each transfer and signal
  bool is_by_libraries = false;
};

/// The place of the one that is kept: the fastest. What differs by 1 % cannot be told apart, so that one by
/// libraries is kept unless another is faster by more, and else one kernel where it takes no longer than
/// that. `finalists` is not empty.
std::size_t winner_of(std::span<const Finalist> finalists);

}  // namespace flashoverlap
