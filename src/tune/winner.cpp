#include "tune/winner.hpp"

#include <algorithm>
#include <vector>

namespace flashoverlap {
namespace {

constexpr double noise = 0.005;
constexpr double saved_us = 1;  // by one kernel, seen in a model

bool is_slower(const Finalist& one, const Finalist& other) {
  const double allowed_us = std::max(one.is_one_kernel ? saved_us : 0, noise * other.between_others_us);
  return one.between_others_us > other.between_others_us + allowed_us ||
         one.repeated_us > (1 + noise) * other.repeated_us;
}

/// Of those at `places`, the one of `sequential` that is considered: by libraries, unless sums of this
/// library's after cuBLASLt are faster.
const Finalist* best_in_sequence(std::span<const Finalist> finalists,
                                 const std::vector<std::size_t>& places) {
  const auto us = [](const Finalist& one) { return one.is_by_libraries ? one.us() : (1 + noise) * one.us(); };
  const Finalist* best = nullptr;
  for (const std::size_t place : places) {
    const Finalist& each = finalists[place];
    if (each.is_sequential && (best == nullptr || us(each) < us(*best))) best = &each;
  }
  return best;
}

}  // namespace

std::size_t winner_of(std::span<const Finalist> finalists, double least_us_in_rows) {
  constexpr double rested = 0.02;
  constexpr double uncertain = 0.015;
  const bool in_rows =
      std::ranges::min(finalists, {}, &Finalist::between_others_us).between_others_us > least_us_in_rows;
  const auto libraries = std::ranges::find(finalists, true, &Finalist::is_by_libraries);
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < finalists.size(); ++place) {
    if (in_rows || libraries == finalists.end() || !is_slower(finalists[place], *libraries))
      places.push_back(place);
  }
  const auto us_of = [&](std::size_t place) { return finalists[place].us(); };
  const double least_us = us_of(std::ranges::min(places, {}, us_of));
  const bool saving_counts = saved_us > uncertain * least_us;
  const Finalist* const in_sequence = best_in_sequence(finalists, places);
  const auto is_preferred = [&](const Finalist& each) {
    if (in_rows) return !each.is_sequential && each.us() <= (1 + rested) * least_us;
    return &each == in_sequence && each.us() <= (1 + uncertain) * least_us;
  };
  const auto rank = [&](const Finalist& each) {
    const bool saves = each.is_one_kernel && each.us() <= least_us + saved_us;
    if (saves && saving_counts) return 0;
    if (is_preferred(each)) return 1;
    if (saves) return 2;
    return each.us() == least_us ? 3 : 4;
  };
  const auto comes_first = [&](std::size_t one, std::size_t other) {
    const int of_one = rank(finalists[one]);
    const int of_other = rank(finalists[other]);
    return of_one != of_other ? of_one < of_other : us_of(one) < us_of(other);
  };
  return std::ranges::min(places, comes_first);
}

}  // namespace flashoverlap
