#include "tune/winner.hpp"

#include <algorithm>

namespace flashoverlap {

std::size_t winner_of(std::span<const Finalist> finalists, double least_us_in_rows) {
  constexpr double noise = 0.005;
  constexpr double rested = 0.02;
  constexpr double saved_us = 1;  // seen in a model
  const double least_us = std::ranges::min(finalists, {}, &Finalist::us).us;
  const auto is_preferred = [&](const Finalist& each) {
    if (least_us > least_us_in_rows) return !each.is_sequential && each.us <= (1 + rested) * least_us;
    return each.is_by_libraries && each.us <= (1 + noise) * least_us;
  };
  const auto rank = [&](const Finalist& each) {
    if (each.is_one_kernel && each.us <= least_us + saved_us) return 0;
    if (is_preferred(each)) return 1;
    return each.us == least_us ? 2 : 3;
  };
  const auto comes_first = [&](const Finalist& one, const Finalist& other) {
    return rank(one) != rank(other) ? rank(one) < rank(other) : one.us < other.us;
  };
  return static_cast<std::size_t>(std::ranges::min_element(finalists, comes_first) - finalists.begin());
}

}  // namespace flashoverlap
