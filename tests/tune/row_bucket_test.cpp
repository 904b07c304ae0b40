#include <gtest/gtest.h>

#include <limits>

#include "flashoverlap/error.hpp"
#include "flashoverlap/tuner.hpp"

namespace flashoverlap {
namespace {

TEST(RowBucketTest, IsTheNextPowerOfTwoOrOneAndAHalfOfOne) {
  for (const auto& [m, bucket] : {std::pair{1, 1},
                                  {2, 2},
                                  {3, 3},
                                  {4, 4},
                                  {5, 6},
                                  {7, 8},
                                  {9, 12},
                                  {13, 16},
                                  {1024, 1024},
                                  {1025, 1536},
                                  {1537, 2048}}) {
    EXPECT_EQ(row_bucket(m), bucket) << m;
  }
}

TEST(RowBucketTest, IsNeverFewerRowsAndAtMostHalfAsManyMore) {
  for (std::int64_t m = 1; m < 5000; ++m) {
    EXPECT_GE(row_bucket(m), m);
    EXPECT_LE(2 * row_bucket(m), 3 * m + 1);
    EXPECT_EQ(row_bucket(row_bucket(m)), row_bucket(m));
  }
}

TEST(RowBucketTest, RefusesNoRowsAndMoreThanAPowerOfTwoCanHold) {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  EXPECT_EQ(row_bucket(most), most);
  EXPECT_THROW(row_bucket(0), InvalidArgument);
  EXPECT_THROW(row_bucket(most + 1), InvalidArgument);
  EXPECT_THROW(row_bucket(std::numeric_limits<std::int64_t>::max()), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap
