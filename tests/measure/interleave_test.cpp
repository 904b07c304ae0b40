#include "measure/interleave.hpp"

#include <gmock/gmock.h>

#include <set>
#include <utility>
#include <vector>

namespace flashoverlap {
namespace {

using ::testing::UnorderedElementsAre;

TEST(Interleave, MeasuresEveryVariantOnceARepetitionAndKeepsWhatFollowsTwoWarmUps) {
  constexpr std::size_t variants = 3;
  std::vector<std::size_t> order;
  std::vector<std::vector<std::size_t>> launches(variants);  // that count, by variant
  const auto samples = interleave(variants, 4, [&](std::size_t variant, std::size_t launch) {
    EXPECT_EQ(launch, order.size());
    order.push_back(variant);
    if (launch >= 2 * variants) launches[variant].push_back(launch);
    return launch;
  });
  ASSERT_EQ(order.size(), 6 * variants);
  for (std::size_t begin = 0; begin < order.size(); begin += variants)
    EXPECT_THAT(std::vector(&order[begin], &order[begin] + variants), UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ(samples, launches);
}

TEST(Interleave, VariesWhoFollowsWhom) {
  constexpr std::size_t variants = 4;
  constexpr int repetitions = 100;
  std::set<std::pair<std::size_t, std::size_t>> neighbours;
  std::size_t last = 0;
  interleave(variants, repetitions, [&](std::size_t variant, std::size_t launch) {
    if (launch > 0) neighbours.emplace(last, variant);
    return last = variant;
  });
  EXPECT_EQ(neighbours.size(), variants * variants);
}

TEST(Interleave, DrawsTheSameOrdersForAllRanks) {
  const auto orders = [] {
    std::vector<std::size_t> order;
    interleave(5, 20, [&](std::size_t variant, std::size_t) {
      order.push_back(variant);
      return 0;
    });
    return order;
  };
  EXPECT_EQ(orders(), orders());
}

TEST(Interleave, MeasuresNothingOfNothing) {
  EXPECT_TRUE(interleave(0, 5, [](std::size_t, std::size_t) { return 1.0; }).empty());
}

}  // namespace
}  // namespace flashoverlap
