#pragma once

#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// Ends what the communicator has under way, with the same words for those that use it after, and throws.
template <typename Failure>
[[noreturn]] void give_up(const Communicator& communicator, const Failure& failure) {
  communicator.abort(failure.what());
  throw failure;
}

}  // namespace flashoverlap
