#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"

/// What the plans of all ranks need of the GPUs they run on and of what they communicate through.
namespace flashoverlap {

inline constexpr int stored_bytes = 16;  ///< that a thread of a copy block moves at a time

/// Whether any rank writes or raises anything of another one itself.
bool needs_peer_memory(std::span<const Plan> plans);

/// Whether a collective of any rank reads or writes its buffer, and no peer does.
bool meets_collectives(std::span<const Plan> plans, BufferRole role);

/// Whether a collective by this number of thread blocks is as fast as NCCL's with the whole GPU: on memory
/// that is shared (`CollectiveMemory`) 8 are enough.
bool is_fast_enough(bool is_shared, int thread_blocks);

/// Whether tiles of the rank wait for counters.
bool tiles_wait(const Plan& plan);

/// Whether one kernel may make message `index` of a list (a plan's, or one that is made from it) side by side
/// with the stores from `first` to before it: it follows them at once, and neither reads nor writes what they
/// write, nor writes what they read.
bool joins_stores(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                  std::size_t index);

/// Whether a kernel may wait for what a message waits for: credits come by themselves, while what other
/// counters wait for may need the multiprocessors that the kernel occupies.
bool waits_for_credits_only(const Plan& plan, const Message& message);

}  // namespace flashoverlap
