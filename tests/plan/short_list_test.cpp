#include "flashoverlap/short_list.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace flashoverlap {
namespace {

using List = ShortList<int>;

TEST(ShortList, KeepsWhatIsAddedAcrossItsOwnRoom) {
  List list;
  EXPECT_TRUE(list.empty());
  for (int element = 0; element < 5; ++element) {
    list.push_back(element);
    ASSERT_EQ(list.size(), static_cast<std::size_t>(element) + 1);
    EXPECT_EQ(list.front(), 0);
    EXPECT_EQ(list.back(), element);
  }
  EXPECT_EQ(list, (List{0, 1, 2, 3, 4}));
  EXPECT_EQ(list, List(std::vector{0, 1, 2, 3, 4}));
  EXPECT_NE(list, (List{0, 1, 2, 3}));
  list.push_back(list[2]);
  EXPECT_EQ(list.back(), 2);
}

TEST(ShortList, CopiesAndMovesShortAndLongOnes) {
  for (const List& list : {List{}, List{7}, List{7, 8, 9}}) {
    List copied = list;
    EXPECT_EQ(copied, list);
    copied.push_back(1);
    EXPECT_EQ(copied.size(), list.size() + 1);
    List moved = std::move(copied);
    EXPECT_EQ(moved.size(), list.size() + 1);
    moved = list;
    EXPECT_EQ(moved, list);
    List other{1, 2};
    other.swap(moved);
    EXPECT_EQ(other, list);
    EXPECT_EQ(moved, (List{1, 2}));
  }
}

TEST(ShortList, InsertsAndErasesAnywhere) {
  List list{3};
  list.insert(list.begin(), 1);
  const std::vector more{4, 5};
  list.insert(list.end(), more.begin(), more.end());
  list.insert(list.begin() + 1, 2);
  EXPECT_EQ(list, (List{1, 2, 3, 4, 5}));
  list.erase(list.begin());
  erase_if(list, [](int element) { return element % 2 == 0; });
  EXPECT_EQ(list, (List{3, 5}));
  list.pop_back();
  EXPECT_EQ(list, List{3});
  list.clear();
  EXPECT_EQ(list, List{});
}

}  // namespace
}  // namespace flashoverlap
