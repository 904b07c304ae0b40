#include "tune/winner.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace flashoverlap {
namespace {

constexpr Finalist streams(double us) { return {.between_others_us = us, .repeated_us = us}; }

constexpr Finalist kernel(double us) {
  return {.between_others_us = us, .repeated_us = us, .is_one_kernel = true};
}

constexpr Finalist libraries(double us) {
  return {.between_others_us = us, .repeated_us = us, .is_by_libraries = true, .is_sequential = true};
}

constexpr Finalist own_sums(double us) {
  return {.between_others_us = us, .repeated_us = us, .is_sequential = true};
}

std::size_t winner(const std::vector<Finalist>& finalists) {
  return winner_of(finalists, /*least_us_in_rows=*/5000);
}

TEST(Winner, IsTheFastest) {
  EXPECT_EQ(winner({streams(100), kernel(90), libraries(120)}), 1U);
  EXPECT_EQ(winner({streams(90), kernel(100), libraries(120)}), 0U);
  EXPECT_EQ(winner({streams(90), kernel(100), libraries(80)}), 2U);
  EXPECT_EQ(winner({streams(100)}), 0U);
}

TEST(Winner, IsInSequenceWithTheFasterSumsWhereNoStreamIsFasterByMoreThanOneAndAHalfPercent) {
  EXPECT_EQ(winner({streams(200), own_sums(202), libraries(202.8)}), 2U) << "a tie is by libraries";
  EXPECT_EQ(winner({streams(200), own_sums(201), libraries(202.8)}), 1U);
  EXPECT_EQ(winner({streams(200), own_sums(203.2), libraries(206)}), 0U);
  EXPECT_EQ(winner({own_sums(87.7), libraries(88.7)}), 0U);
  constexpr Finalist tiring{.between_others_us = 100, .repeated_us = 105, .is_sequential = true};
  EXPECT_EQ(winner({streams(102.9), tiring, libraries(104)}), 2U) << "sums that are out do not count";
}

TEST(Winner, IsByLibrariesWhereNoStreamIsFasterByMoreThanOneAndAHalfPercent) {
  EXPECT_EQ(winner({streams(200), kernel(202.4), libraries(202.8)}), 2U);
  EXPECT_EQ(winner({streams(200), kernel(202.4), libraries(203.2)}), 0U);
}

TEST(Winner, IsOneKernelNextToLibrariesWhereOneMicrosecondIsMoreThanTheUncertainPart) {
  EXPECT_EQ(winner({kernel(60), libraries(60.8)}), 0U);
  EXPECT_EQ(winner({kernel(60), libraries(59.8)}), 0U);
  EXPECT_EQ(winner({kernel(70), libraries(70.8)}), 1U);
  EXPECT_EQ(winner({kernel(200), libraries(202.8)}), 1U);
  EXPECT_EQ(winner({kernel(200), libraries(203.2)}), 0U);
}

TEST(Winner, IsOneKernelWhereItTakesAtMostOneMicrosecondLonger) {
  EXPECT_EQ(winner({streams(30), kernel(30.9), libraries(40)}), 1U);
  EXPECT_EQ(winner({streams(30), kernel(31.1), libraries(40)}), 0U);
  EXPECT_EQ(winner({streams(2000), kernel(2000.9), libraries(2400)}), 1U);
  EXPECT_EQ(winner({streams(2000), kernel(2001.1), libraries(2400)}), 0U);
}

TEST(Winner, OverlapsAtThePowerLimitWhereThatTakesAtMostTwoPercentLonger) {
  constexpr Finalist sequential = libraries(20'000);
  EXPECT_EQ(winner({streams(20'500), streams(20'390), sequential}), 1U);
  EXPECT_EQ(winner({streams(20'500), streams(20'410), sequential}), 2U);
  EXPECT_EQ(winner({streams(19'900), streams(19'800), sequential}), 1U);
}

TEST(Winner, IsTheFastestInTheMeanOfBothWays) {
  constexpr Finalist alike{.between_others_us = 101, .repeated_us = 101};
  constexpr Finalist tiring{.between_others_us = 98, .repeated_us = 107};
  EXPECT_EQ(winner({tiring, alike, libraries(120)}), 1U);
}

TEST(Winner, IsNotOfRowsWhereOnlyRunsAfterRunsTakeThatLong) {
  constexpr Finalist tiring{.between_others_us = 4950, .repeated_us = 5250};
  constexpr Finalist sequential{
      .between_others_us = 4990, .repeated_us = 5100, .is_by_libraries = true, .is_sequential = true};
  EXPECT_EQ(winner({tiring, sequential}), 1U);
}

TEST(Winner, IsNotSlowerThanByLibrariesInEitherWay) {
  constexpr Finalist tiring{.between_others_us = 390, .repeated_us = 408};
  constexpr Finalist cold{.between_others_us = 408, .repeated_us = 390};
  EXPECT_EQ(winner({tiring, libraries(405)}), 1U);
  EXPECT_EQ(winner({cold, libraries(405)}), 1U);
  EXPECT_EQ(winner({tiring, cold, libraries(409)}), 0U);
  EXPECT_EQ(winner({tiring, cold}), 0U);
}

TEST(Winner, IsOneKernelThatTakesOneMicrosecondLongerOnlyBetweenOthers) {
  constexpr Finalist early{.between_others_us = 30.9, .repeated_us = 28, .is_one_kernel = true};
  constexpr Finalist late{.between_others_us = 29, .repeated_us = 30.4, .is_one_kernel = true};
  EXPECT_EQ(winner({early, libraries(30)}), 0U);
  EXPECT_EQ(winner({late, libraries(30)}), 1U);
}

TEST(Winner, IsTheFastestKernelOfTwoThatTakeAsLong) {
  EXPECT_EQ(winner({kernel(100.4), streams(100), kernel(100.2)}), 2U);
}

}  // namespace
}  // namespace flashoverlap
