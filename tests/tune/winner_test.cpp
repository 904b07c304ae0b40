#include "tune/winner.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace flashoverlap {
namespace {

constexpr Finalist streams(double us) { return {.us = us}; }
constexpr Finalist kernel(double us) { return {.us = us, .is_one_kernel = true}; }
constexpr Finalist libraries(double us) { return {.us = us, .is_by_libraries = true}; }

std::size_t winner(const std::vector<Finalist>& finalists, double saved_us = 0) {
  return winner_of(finalists, saved_us);
}

TEST(Winner, IsTheFastest) {
  EXPECT_EQ(winner({streams(100), kernel(90), libraries(120)}), 1U);
  EXPECT_EQ(winner({streams(90), kernel(100), libraries(120)}), 0U);
  EXPECT_EQ(winner({streams(90), kernel(100), libraries(80)}), 2U);
  EXPECT_EQ(winner({streams(100)}), 0U);
}

TEST(Winner, IsByLibrariesWhereNoStreamIsFasterByMoreThanHalfAPercent) {
  EXPECT_EQ(winner({streams(100), kernel(101.2), libraries(100.4)}), 2U);
  EXPECT_EQ(winner({streams(100), kernel(101.2), libraries(100.6)}), 0U);
}

TEST(Winner, IsOneKernelWhereItTakesAsLongAsTheFastest) {
  EXPECT_EQ(winner({streams(100), streams(100.5), kernel(100.9), libraries(120)}), 2U);
  EXPECT_EQ(winner({streams(100), streams(100.5), kernel(101.1), libraries(120)}), 0U);
  EXPECT_EQ(winner({streams(120), kernel(100.9), libraries(100)}), 1U);
  EXPECT_EQ(winner({streams(120), kernel(101.1), libraries(100)}), 2U);
}

TEST(Winner, IsOneKernelWhereItTakesAtMostWhatItSavesInAModelLonger) {
  EXPECT_EQ(winner({streams(30), kernel(30.9), libraries(30)}, 1), 1U);
  EXPECT_EQ(winner({streams(30.5), kernel(31.1), libraries(30)}, 1), 2U);
  EXPECT_EQ(winner({streams(200), kernel(201.9), libraries(220)}, 1), 1U) << "1 % is more";
}

TEST(Winner, IsTheFastestKernelOfTwoThatTakeAsLong) {
  EXPECT_EQ(winner({kernel(100.4), streams(100), kernel(100.2)}), 2U);
}

}  // namespace
}  // namespace flashoverlap
