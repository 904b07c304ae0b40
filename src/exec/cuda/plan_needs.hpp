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

}  // namespace flashoverlap
