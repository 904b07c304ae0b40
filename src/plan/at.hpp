#pragma once

#include <concepts>
#include <cstddef>

namespace flashoverlap {

/// Element `index` of a list: ranks, counters and rows are signed in plans.
constexpr decltype(auto) at(auto&& list, std::integral auto index) {
  return list[static_cast<std::size_t>(index)];
}

}  // namespace flashoverlap
