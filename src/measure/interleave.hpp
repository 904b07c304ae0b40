/// Timing several variants against each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace flashoverlap {

/// Measures every variant once in each repetition, each time in another order: at the power limit a variant's
/// clock depends on what ran before it, so a fixed order favours some. All ranks draw the same orders. The
/// first two repetitions do not count. `measure(variant, launch)` returns a sample; `launch` counts the
/// samples, so that each can use other operands. Otherwise only the first of a repetition would miss the
/// cache. Returns the samples by variant.
template <typename Measure>
auto interleave(std::size_t variants, int repetitions, Measure&& measure) {
  constexpr int warm_ups = 2;
  std::vector<std::vector<decltype(measure(std::size_t{}, std::size_t{}))>> samples(variants);
  std::vector<std::size_t> order(variants);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random;
  std::size_t launch = 0;
  for (int repetition = -warm_ups; repetition < repetitions; ++repetition) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t variant : order) {
      const auto sample = measure(variant, launch++);
      if (repetition >= 0) samples[variant].push_back(sample);
    }
  }
  return samples;
}

/// The value below which `share` of the values lie; there is at least one.
inline double quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

}  // namespace flashoverlap
