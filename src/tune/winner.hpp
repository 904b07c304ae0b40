#pragma once

#include <cstddef>
#include <span>

namespace flashoverlap {

/// A schedule that was measured together with others.
struct Finalist {
  double between_others_us = 0;  ///< as in a model: other kernels come before each run
  double repeated_us = 0;        ///< run follows run, which may begin earlier and leaves the GPU no rest
  bool is_one_kernel = false;    ///< a run is one launch, in place of a call for each transfer and signal
  bool is_by_libraries = false;
  bool is_sequential = false;

  double us() const { return (between_others_us + repeated_us) / 2; }
};

/// The place of the one that is kept: the fastest in the mean of both ways, of those that are not slower than
/// the one by libraries in either of them, by more than 0.5 %, which is the noise of the medians; between
/// other kernels one kernel may take 1 us longer. One kernel is kept where it takes at most 1 us longer, as
/// it saves the host calls and a model time that these measurements do not show. Before it comes `sequential`
/// where that takes at most 1.5 % longer than the fastest, as what an overlap gains elsewhere differs by that
/// much, unless 1 us is more than these 1.5 %. Of two that are `sequential` it is the one by libraries,
/// unless the other is faster by more than 0.5 %. Of those of more than `least_us_in_rows`, which run each in
/// a row at the power limit, it is one that overlaps where that takes at most 2 % longer: in a row a GPU that
/// communicates alone saves power for its own next product, in a model for whatever comes next. `finalists`
/// is not empty.
std::size_t winner_of(std::span<const Finalist> finalists, double least_us_in_rows);

}  // namespace flashoverlap
