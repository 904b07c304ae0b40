#pragma once

#include <cstddef>

namespace flashoverlap {

/// Element `index` of a list, where the index is signed, as ranks, rows and counters are, or an enumerator.
constexpr decltype(auto) at(auto&& list, auto index) { return list[static_cast<std::size_t>(index)]; }

}  // namespace flashoverlap
