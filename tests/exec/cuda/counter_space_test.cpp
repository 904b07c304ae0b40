#include "exec/cuda/counter_space.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

TEST(CounterSpace, TakesTheFirstGapThatIsLargeEnough) {
  CounterSpace space(1024);
  EXPECT_EQ(space.take(256), 0);
  EXPECT_EQ(space.take(512), 256);
  EXPECT_EQ(space.largest_gap(), 256);
  space.give_back(0);
  EXPECT_EQ(space.take(512), std::nullopt);  // 512 are left, but not together
  EXPECT_EQ(space.largest_gap(), 256);
  space.give_back(256);
  EXPECT_EQ(space.largest_gap(), 1024);
  EXPECT_EQ(space.take(1024), 0);
  EXPECT_EQ(space.largest_gap(), 0);
}

TEST(CounterSpace, HoldsWhatItsLargestGapHoldsAndNoMore) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  CounterSpace space(16 * 256);
  std::vector<std::int64_t> taken;
  for (int step = 0; step < 1000; ++step) {
    const std::int64_t bytes = 256 * (1 + static_cast<std::int64_t>(random() % 5));
    const bool fits = bytes <= space.largest_gap();
    const std::optional<std::int64_t> offset = space.take(bytes);
    ASSERT_EQ(offset.has_value(), fits) << "step " << step;
    if (offset) taken.push_back(*offset);
    if (!fits || random() % 3 == 0) {
      const std::size_t place = random() % taken.size();
      space.give_back(taken[place]);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }
}

}  // namespace
}  // namespace flashoverlap
