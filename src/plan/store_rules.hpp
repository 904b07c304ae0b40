#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

/// Which stores one kernel may make.
namespace flashoverlap {

/// Whether one kernel may make message `index` of a list (a plan's, or one that is made from it) side by side
/// with the stores from `first` to before it: it follows them at once, and neither reads nor writes what they
/// write, nor writes what they read.
bool joins_stores(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                  std::size_t index);

/// Whether a kernel may wait for what a message waits for: credits come by themselves, while what other
/// counters wait for may need the multiprocessors that the kernel occupies.
bool waits_for_credits_only(const Plan& plan, const Message& message);

}  // namespace flashoverlap
