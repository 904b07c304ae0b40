#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "exec/cuda/plan_memory.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct ResolvedRaise {
  std::uint32_t* counter;
  std::optional<std::uint32_t> written;  ///< nothing: it is not raised in order, so it must be added to
};

/// By message of a rank's list: its plan's, or one that is made from it.
std::vector<std::vector<ResolvedRaise>> resolve_raises(
    const std::vector<Message>& messages, const PlanMemory& memory,
    const std::function<bool(const Raise&)>& is_raised_in_order);

}  // namespace flashoverlap
