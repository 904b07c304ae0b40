#pragma once

#include <cstddef>
#include <span>

namespace flashoverlap {

/// A schedule that was measured together with others.
struct Finalist {
  double us = 0;
  bool is_one_kernel = false;  ///< a run is one launch, in place of a call for each transfer and signal
  bool is_by_libraries = false;
  bool is_sequential = false;
};

/// The place of the one that is kept: the fastest. One kernel is kept where it takes at most 1 us longer, as
/// it saves the host calls and a model time that these measurements do not show; else one by libraries where
/// it takes at most 0.5 % longer, which is the noise of the medians. Of those of more than
/// `least_us_in_rows`, which run each in a row at the power limit, it is one that overlaps where that takes
/// at most 2 % longer: in a row a GPU that communicates alone saves power for its own next product, in a
/// model for whatever comes next. `finalists` is not empty.
std::size_t winner_of(std::span<const Finalist> finalists, double least_us_in_rows);

}  // namespace flashoverlap
