#include "tune/winner.hpp"

#include <algorithm>

namespace flashoverlap {

std::size_t winner_of(std::span<const Finalist> finalists) {
  constexpr double alike = 1.01;
  const double limit_us = alike * std::ranges::min(finalists, {}, &Finalist::us).us;
  const auto rank = [&](const Finalist& each) {
    if (each.us > limit_us) return 3;
    if (each.is_by_libraries) return 0;
    return each.is_one_kernel ? 1 : 2;
  };
  const auto comes_first = [&](const Finalist& one, const Finalist& other) {
    return rank(one) != rank(other) ? rank(one) < rank(other) : one.us < other.us;
  };
  return static_cast<std::size_t>(std::ranges::min_element(finalists, comes_first) - finalists.begin());
}

}  // namespace flashoverlap
