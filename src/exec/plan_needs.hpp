#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/plan.hpp"

/// What the plans of all ranks need of the GPUs they run on.
namespace flashoverlap {

/// Whether any rank writes or raises anything of another one itself.
bool needs_peer_memory(const std::vector<Plan>& plans);

/// Whether any rank calls NCCL.
bool needs_nccl(const std::vector<Plan>& plans);

/// With so many, collectives on shared memory (`Communicator::allocate`) are as fast as NCCL's others with
/// the whole GPU.
inline constexpr int enough_thread_blocks = 8;

/// Whether a collective of any rank reads or writes its buffer.
bool meets_collectives(const std::vector<Plan>& plans, BufferRole role);

/// Whether tiles of the rank wait for counters.
bool tiles_wait(const Plan& plan);

/// Whether a counter of any rank is raised by the messages of one stream of this rank alone: then it goes
/// through the same values in every run.
bool raised_in_order(const std::vector<Plan>& plans, std::int32_t rank, const Raise& raise);

/// Whether messages of the rank take multiprocessors: NCCL, copy blocks, copies within the GPU, and raises
/// that do not come in order.
bool messages_take_multiprocessors(const std::vector<Plan>& plans, std::int32_t rank);

}  // namespace flashoverlap
