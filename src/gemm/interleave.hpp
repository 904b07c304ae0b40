#pragma once

#include <cstddef>
#include <vector>

namespace flashoverlap {

/// Measures every variant once in each repetition, back and forth, as one leaves the card warmer for the
/// next; two repetitions before do not count. `measure(variant, launch)` returns a sample; `launch` counts
/// all of them, so that operands can rotate at each, lest only the first of a repetition miss the cache.
/// Returns the samples by variant.
template <typename Measure>
auto interleave(std::size_t variants, int repetitions, Measure&& measure) {
  constexpr int warm_ups = 2;
  std::vector<std::vector<decltype(measure(std::size_t{}, std::size_t{}))>> samples(variants);
  std::size_t launch = 0;
  for (int repetition = -warm_ups; repetition < repetitions; ++repetition) {
    for (std::size_t turn = 0; turn < variants; ++turn) {
      const std::size_t variant = repetition % 2 == 0 ? turn : variants - 1 - turn;
      const auto sample = measure(variant, launch++);
      if (repetition >= 0) samples[variant].push_back(sample);
    }
  }
  return samples;
}

}  // namespace flashoverlap
