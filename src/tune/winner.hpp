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

/// The place of the one that is kept: the fastest. One kernel is kept where it takes at most 1 % longer, of
/// short ones 1 us and of long ones 5 us, as it saves the host calls and a model time that these measurements
/// do not show; else one by libraries where it takes at most 0.5 % longer, which is the noise of the medians.
/// `finalists` is not empty.
std::size_t winner_of(std::span<const Finalist> finalists);

}  // namespace flashoverlap
