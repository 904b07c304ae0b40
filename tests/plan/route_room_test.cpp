// Whether the room that an operator keeps for routes is enough for whatever routes come.
#include "plan/route_room.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "flashoverlap/planner.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

std::int64_t stores(const Plan& plan) {
  return std::ranges::count(plan.messages, MessageKind::store, &Message::kind);
}

TEST(RouteRoom, IsEnoughForAnyRoutes) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  testing::RandomCases cases(seed);
  int with_stores = 0;
  int with_groups = 0;
  for (int plans = 0; plans < 6000;) {
    auto [problem, schedule] = cases.next();
    if (problem.capacity == 0) continue;
    Plan plan = make_plan(problem, schedule, problem.ranks - 1);
    const RouteRoom room = route_room(plan);
    for (int route = 0; route < 10; ++route, ++plans) {
      EXPECT_LE(std::ssize(plan.tiles), room.tiles) << testing::describe({problem, schedule});
      EXPECT_LE(std::ssize(plan.counters), room.counters) << testing::describe({problem, schedule});
      EXPECT_LE(stores(plan), room.stores) << testing::describe({problem, schedule});
      with_stores += stores(plan) > 0 ? 1 : 0;
      with_groups += schedule.groups.empty() ? 0 : 1;
      flashoverlap::route(plan, cases.expert_rows(problem));
      EXPECT_EQ(route_room(plan).stores, room.stores);
    }
  }
  EXPECT_GT(with_stores, 0);
  EXPECT_GT(with_groups, 0);
}

}  // namespace
}  // namespace flashoverlap
