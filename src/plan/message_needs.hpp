#pragma once

#include <span>

#include "flashoverlap/plan.hpp"

/// What messages need of the GPUs they run on.
namespace flashoverlap {

/// Whether NCCL makes the transfers of a kind.
bool is_made_by_nccl(MessageKind kind);

/// Whether any rank calls NCCL.
bool needs_nccl(std::span<const Plan> plans);

/// Whether a counter of any rank is raised by the messages of one stream of this rank alone: then it goes
/// through the same values in every run, and can be written without a multiprocessor.
bool raised_in_order(std::span<const Plan> plans, std::int32_t rank, const Raise& raise);

/// Whether a message's transfer runs on multiprocessors: NCCL, copy blocks, or a copy within the GPU.
bool transfers_by_multiprocessors(const Plan& plan, const Message& message);

/// What a message runs on multiprocessors.
enum class MultiprocessorUse : std::uint8_t {
  nothing,    ///< the stream and copy engines do all
  raises,     ///< a kernel that raises counters, which a multiprocessor or two are enough for
  transfers,  ///< `transfers_by_multiprocessors`
};
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank, const Message& message);

/// The most that any message of the rank, or of any rank, needs.
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank);
MultiprocessorUse multiprocessor_use(std::span<const Plan> plans);

}  // namespace flashoverlap
