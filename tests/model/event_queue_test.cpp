#include "model/event_queue.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

SimulationEvent event(double time_us, std::int32_t index) { return {.time_us = time_us, .index = index}; }

TEST(EventQueue, EventsOfTheSameTimeComeInTheOrderInWhichTheyWerePushed) {
  EventQueue queue;
  queue.push(event(2, 0));
  queue.push(event(1, 1));
  queue.push(event(2, 2));
  EXPECT_EQ(queue.pop().index, 1);
  EXPECT_EQ(queue.pop().index, 0);
  queue.push(event(2, 3));  // while those of its time are handled
  EXPECT_EQ(queue.pop().index, 2);
  queue.push(event(1, 4));  // earlier than what was handled last
  EXPECT_EQ(queue.pop().index, 4);
  EXPECT_EQ(queue.pop().index, 3);
  EXPECT_TRUE(queue.empty());
  queue.push(event(2, 5));  // when there was nothing left of its time
  EXPECT_EQ(queue.pop().index, 5);
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, RandomEventsComeInTheOrderOfTheirTimes) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::mt19937_64 random(seed);
  EventQueue queue;
  std::vector<SimulationEvent> left;  // in the order in which they were pushed
  for (int step = 0; step < 20'000; ++step) {
    if (left.empty() || random() % 2 == 0) {
      left.push_back(event(static_cast<double>(random() % 20), step));
      queue.push(left.back());
    } else {
      const auto next = std::ranges::min_element(left, {}, &SimulationEvent::time_us);
      ASSERT_EQ(queue.pop().index, next->index) << "after " << step << " steps";
      left.erase(next);
    }
  }
  EXPECT_EQ(queue.empty(), left.empty());
}

}  // namespace
}  // namespace flashoverlap
