#pragma once

#include <span>

#include "flashoverlap/plan.hpp"

/// Which resources messages need: NCCL, multiprocessors.
namespace flashoverlap {

/// Whether messages of this kind are calls of NCCL.
bool is_made_by_nccl(MessageKind kind);

/// Whether any rank calls NCCL.
bool needs_nccl(std::span<const Plan> plans);

/// Whether only the messages of one stream of this rank raise the counter. Then it takes the same values in
/// the same order in every run, so that they can be written without a multiprocessor.
bool raised_in_order(std::span<const Plan> plans, std::int32_t rank, const Raise& raise);

/// Whether a message's transfer runs on multiprocessors: by NCCL, by stores, or as a copy within the GPU.
bool transfers_by_multiprocessors(const Plan& plan, const Message& message);

/// That store to peers, where the schedule does not say how many.
inline constexpr int default_store_multiprocessors = 8;

/// What a message uses multiprocessors for.
enum class MultiprocessorUse : std::uint8_t {
  nothing,    ///< stream operations and copy engines do it all
  raises,     ///< a kernel that raises counters; one or two multiprocessors are enough
  transfers,  ///< `transfers_by_multiprocessors`
};
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank, const Message& message);

/// The largest use of any message of the rank, or of all ranks.
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank);
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans);

/// Whether tiles of the rank wait for counters.
bool tiles_wait(const Plan& plan);

/// Whether tiles wait for messages that need multiprocessors. Those that the plan leaves free may be taken by
/// a kernel of another stream, which then runs on them alone, while the tiles wait and have all others.
bool can_be_held_up(std::span<const Plan> plans);

}  // namespace flashoverlap
