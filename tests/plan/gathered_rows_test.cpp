// Where the rows lie that a rank has gathered or received, by what its messages and those of others move.
#include "plan/gathered_rows.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "flashoverlap/planner.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

/// Rank and row of its operand.
using Row = std::pair<std::int32_t, std::int32_t>;
/// By rank, what rows of its buffer `gathered` hold in the end.
using Contents = std::vector<std::map<std::int32_t, Row>>;

void move_rows(Contents& contents, std::int32_t source, std::int32_t first, std::int32_t target,
               const Region& destination) {
  if (destination.buffer != BufferRole::gathered) return;
  for (std::int32_t row = 0; row < destination.rows; ++row)
    contents[static_cast<std::size_t>(target)][destination.row + row] = {source, first + row};
}

Contents contents_after(const std::vector<Plan>& plans) {
  Contents contents(plans.size());
  std::map<Row, std::vector<Region>> received;  // by source and target, in order
  for (const Plan& plan : plans) {
    for (const Message& message : plan.messages) {
      for (const Part& part : message.receives) received[{part.peer, plan.rank}].push_back(part.region);
    }
  }
  std::map<Row, std::size_t> sent;
  for (const Plan& plan : plans) {
    for (const Message& message : plan.messages) {
      for (const Part& part : message.sends) {
        const Row pair{plan.rank, part.peer};
        move_rows(contents, plan.rank, part.region.row, part.peer, received.at(pair).at(sent[pair]++));
      }
      if (message.kind == MessageKind::copy || message.kind == MessageKind::store) {
        const bool everywhere = message.peer == every_rank;
        for (std::int32_t peer = 0; peer < std::ssize(plans); ++peer) {
          if (everywhere || peer == message.peer)
            move_rows(contents, plan.rank, message.source.row, peer, message.destination);
        }
      }
      if (message.kind != MessageKind::all_gather) continue;
      for (const Plan& source : plans) {
        const Region part{message.destination.buffer,
                          message.destination.row + source.rank * message.source.rows, message.source.rows};
        move_rows(contents, source.rank, message.source.row, plan.rank, part);
      }
    }
  }
  return contents;
}

/// In the order that a product has them.
std::vector<Row> expected(const Problem& problem, std::int32_t rank) {
  std::vector<Row> rows;
  for (std::int32_t source = 0; source < problem.ranks; ++source) {
    std::int64_t first = 0;
    std::int64_t count = problem.m / problem.ranks;
    if (problem.operation == Operation::all_to_all_gemm) {
      for (std::int32_t before = 0; before < rank; ++before) first += rows_between(problem, source, before);
      count = rows_between(problem, source, rank);
    }
    for (std::int64_t row = first; row < first + count; ++row)
      rows.emplace_back(source, static_cast<std::int32_t>(row));
  }
  return rows;
}

bool gathers_whole_rows(const Problem& problem) {
  if (problem.a_layout != OperandLayout::k_contiguous) return false;
  if (problem.operation == Operation::all_gather_gemm) return problem.gathered == Operand::a;
  return problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::rows;
}

TEST(GatheredRows, AreWhereTheMessagesPutThem) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  testing::RandomCases cases(seed);
  int out_of_place = 0;
  for (int checked = 0; checked < 8000;) {
    const testing::Case drawn = cases.next();
    if (!gathers_whole_rows(drawn.problem)) continue;
    ++checked;
    const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
    const Contents contents = contents_after(plans);
    for (const Plan& plan : plans) {
      const std::vector<GatheredRows> all = gathered_rows(plan);
      std::vector<Row> found;
      for (const GatheredRows& each : all) {
        ASSERT_EQ(each.row, std::ssize(found)) << testing::describe(drawn);
        for (std::int32_t row = each.buffer_row; row < each.buffer_row + each.rows; ++row) {
          found.push_back(each.buffer == BufferRole::a
                              ? Row{plan.rank, row}
                              : contents[static_cast<std::size_t>(plan.rank)].at(row));
        }
      }
      ASSERT_EQ(found, expected(drawn.problem, plan.rank)) << testing::describe(drawn);
      out_of_place += are_in_place(all) ? 0 : 1;
    }
  }
  EXPECT_GT(out_of_place, 0);
}

TEST(GatheredRows, OfSeveralGroupsOfACollectiveAreOutOfPlace) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 64, .n = 8, .k = 8, .ranks = 2};
  Schedule schedule{.strategy = Strategy::signal, .tile_rows = 8, .tile_cols = 8, .multiprocessors = 2};
  schedule.waves_per_group = 1;
  EXPECT_FALSE(are_in_place(gathered_rows(make_plan(problem, schedule, 0))));
  schedule.strategy = Strategy::sequential;
  const auto whole = gathered_rows(make_plan(problem, schedule, 0));
  EXPECT_EQ(whole, (std::vector<GatheredRows>{{0, 64, BufferRole::gathered, 0}}));
}

}  // namespace
}  // namespace flashoverlap
