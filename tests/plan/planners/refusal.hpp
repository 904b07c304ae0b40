/// What a planner says to what it cannot plan.
#pragma once

#include <string>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap::testing {

/// "accepted" where nothing is refused.
template <typename Function>
std::string refusal_by(Function&& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

inline std::string refusal(const Problem& problem, const Schedule& schedule = {}) {
  return refusal_by([&] { make_plans(problem, schedule); });
}

}  // namespace flashoverlap::testing
