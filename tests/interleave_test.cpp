#include "gemm/interleave.hpp"

#include <gmock/gmock.h>

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;

TEST(Interleave, GoesBackAndForthAndKeepsWhatFollowsTwoWarmUps) {
  std::vector<std::size_t> order;
  const auto samples = interleave(3, 2, [&](std::size_t variant, std::size_t launch) {
    order.push_back(variant);
    return 10 * launch + variant;
  });
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0));
  EXPECT_THAT(samples, ElementsAre(ElementsAre(60, 110), ElementsAre(71, 101), ElementsAre(82, 92)));
}

TEST(Interleave, MeasuresNothingOfNothing) {
  EXPECT_TRUE(interleave(0, 5, [](std::size_t, std::size_t) { return 1.0; }).empty());
}

}  // namespace
}  // namespace flashoverlap
