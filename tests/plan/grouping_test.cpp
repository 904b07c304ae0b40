#include "plan/grouping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashoverlap/error.hpp"
#include "plan/planners/refusal.hpp"

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal_by;

std::vector<std::int32_t> column(const std::vector<Range>& ranges, std::int32_t Range::*member) {
  std::vector<std::int32_t> values;
  for (const Range& range : ranges) values.push_back(range.*member);
  return values;
}

TEST(ShareOut, GivesLaterRangesTheBlocksThatAreLeftOver) {
  const std::vector<Range> ranges = share_out(19, 2, 4);  // 10 blocks, the last of one row
  EXPECT_THAT(column(ranges, &Range::first), ElementsAre(0, 4, 10, 14));
  EXPECT_THAT(column(ranges, &Range::count), ElementsAre(4, 6, 4, 5));
}

TEST(Grouping, CutsEntriesAtWaveBoundaries) {
  const Grouping grouping({.multiprocessors = 10, .groups = {1, 2, 1}}, 33);
  EXPECT_EQ(grouping.waves(), 4);
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::first), ElementsAre(0, 10, 30));
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::count), ElementsAre(10, 20, 3));
}

TEST(Grouping, ComputesTheFirstGroupOnMoreMultiprocessors) {
  const Schedule schedule{.multiprocessors = 10, .first_multiprocessors = 13, .groups = {2, 1, 1}};
  const Grouping grouping(schedule, 44);
  EXPECT_EQ(grouping.waves(), 4);
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::first), ElementsAre(0, 26, 36));
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::count), ElementsAre(26, 10, 8));
  EXPECT_EQ(wave_count(schedule, 20), 2);  // the first group alone
  EXPECT_EQ(wave_count(schedule, 27), 3);
}

TEST(Grouping, RefusesFewerMultiprocessorsForTheFirstGroupThanForTheOthers) {
  const Schedule schedule{.multiprocessors = 10, .first_multiprocessors = 9};
  EXPECT_THAT(refusal_by([&] { validate(schedule); }),
              HasSubstr("first_multiprocessors = 9: must be between 10 and 4096"));
}

TEST(Grouping, EndsAGroupOfRowBlocksWithTheBlockThatEndsNearestToItsLastWave) {
  // 4 row blocks of 8 tiles, waves of 10: the first wave ends in the second block.
  const Grouping grouping({.strategy = Strategy::signal, .multiprocessors = 10, .groups = {1, 3}}, 32);
  EXPECT_THAT(column(grouping.ranges(400, 128), &Range::first), ElementsAre(0, 128));
  EXPECT_THAT(column(grouping.ranges(400, 128), &Range::count), ElementsAre(128, 272));
}

TEST(Grouping, LeavesOutGroupsWithoutABlock) {
  const Grouping grouping({.multiprocessors = 10, .waves_per_group = 1}, 32);  // 4 groups, 2 row blocks
  EXPECT_EQ(grouping.ranges(256, 128).size(), 2u);
}

TEST(Grouping, RefusesGroupsThatDoNotAddUp) {
  EXPECT_THAT(refusal_by([] {
                Grouping({.multiprocessors = 10, .groups = {1, 2}}, 33);
              }),
              HasSubstr("groups = 1,2: must add up to 4 waves, those of"));
}

TEST(SharingWorkers, AreAsManyForEachTileWhereThereAreTwoForEach) {
  EXPECT_EQ(sharing_workers(56, 64, 132), 112);
  EXPECT_EQ(sharing_workers(45, 64, 132), 90);
  EXPECT_EQ(sharing_workers(44, 64, 132), 132);
  EXPECT_EQ(sharing_workers(34, 64, 132), 102);
  EXPECT_EQ(sharing_workers(67, 64, 132), 132);
  EXPECT_EQ(sharing_workers(112, 64, 132), 112) << "four fifths have a tile";
  EXPECT_EQ(sharing_workers(0, 64, 132), 132);
  EXPECT_EQ(sharing_workers(1, 41, 132), 10) << "four steps each at least";
  EXPECT_EQ(sharing_workers(40, 3, 132), 40);
  EXPECT_EQ(sharing_workers(16, 7, 33), 16) << "28 would have four steps each";
}

}  // namespace
}  // namespace flashoverlap
