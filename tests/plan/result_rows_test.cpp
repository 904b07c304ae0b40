#include "plan/result_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "flashoverlap/planner.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

/// Of one row: how many elements a rank itself and its peers write.
struct Written {
  std::int64_t own = 0;
  std::int64_t by_peers = 0;
};

/// From the lists of all ranks, row by row.
std::vector<Written> written_rows(const std::vector<Plan>& plans, std::int32_t rank) {
  const Buffer& out = plans[static_cast<std::size_t>(rank)].buffer(BufferRole::out);
  std::vector<Written> rows(static_cast<std::size_t>(out.rows));
  for (const Plan& plan : plans) {
    const auto add = [&](std::int64_t row, std::int64_t cols) {
      Written& written = rows[static_cast<std::size_t>(row)];
      (plan.rank == rank ? written.own : written.by_peers) += cols;
    };
    for (const Tile& tile : plan.tiles) {
      if (tile.buffer != BufferRole::out) continue;
      for (std::int32_t row = 0; row < tile.rows; ++row) {
        const RowTarget to = stored_at(plan, tile, row);
        if (to.rank == rank || to.rank == every_rank) add(to.row, tile.cols);
      }
    }
    for (const Message& message : plan.messages) {
      if (message.peer != rank || message.destination.buffer != BufferRole::out) continue;
      for (std::int32_t row = 0; row < message.destination.rows; ++row)
        add(message.destination.row + row, message.cols == none ? out.cols : message.cols);
    }
  }
  return rows;
}

TEST(ResultRows, ArePeersWhereOnlyTheyWriteThemOrAllWhereRowsAreShared) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  int with_peers = 0;
  int divided = 0;
  for (int round = 0; round < 2000; ++round) {
    const testing::Case drawn = cases.next();
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(drawn)));
    const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
    for (const Plan& plan : plans) {
      const std::vector<Region> regions = rows_from_peers(plan);
      const Buffer& out = plan.buffer(BufferRole::out);
      if (!out.peer_written || out.rows == 0) {
        EXPECT_TRUE(regions.empty());
        continue;
      }
      ++with_peers;
      const std::vector<Region> all{{.rows = static_cast<std::int32_t>(out.rows)}};
      const std::vector<Written> rows = written_rows(plans, plan.rank);
      const auto is_shared = [](const Written& row) { return row.own > 0 && row.by_peers > 0; };
      if (drawn.problem.capacity > 0 || std::ranges::any_of(rows, is_shared)) {
        EXPECT_EQ(regions, all);
        continue;
      }
      std::vector<bool> copied(rows.size());
      for (const Region& region : regions) {
        for (std::int32_t row = 0; row < region.rows; ++row)
          copied[static_cast<std::size_t>(region.row + row)] = true;
      }
      divided += regions == all ? 0 : 1;
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const bool is_written = rows[row].own > 0 || rows[row].by_peers > 0;
        EXPECT_TRUE(!is_written || copied[row] == (rows[row].by_peers > 0)) << row;
      }
    }
  }
  EXPECT_GT(with_peers, 100);
  EXPECT_GT(divided, 50);
}

TEST(ResultRows, AreAllWhereNcclWritesSomeOrWhatPeersHaveWrittenIsSentOn) {
  const Problem problem{.operation = Operation::gemm_all_to_all, .m = 512, .n = 256, .k = 64, .ranks = 2};
  const std::vector<Region> all{{.rows = 512}};
  Plan received = make_plans(problem, {.strategy = Strategy::p2p})[0];
  received.buffer(BufferRole::out).peer_written = true;
  EXPECT_EQ(rows_from_peers(received), all);

  Plan forwards = make_plans(problem, {.strategy = Strategy::copy})[0];
  const std::vector<Region> from_peers = rows_from_peers(forwards);
  ASSERT_NE(from_peers, all);
  const auto row = static_cast<std::int32_t>(from_peers.front().row);
  forwards.messages.push_back({.kind = MessageKind::copy,
                               .source = {BufferRole::out, row, 1},
                               .destination = {BufferRole::out, row, 1},
                               .peer = 1});
  EXPECT_EQ(rows_from_peers(forwards), all);
}

TEST(ResultRows, AreCopiedWithTheOthersWhereThoseAreFew) {
  const auto copied = [](std::int64_t n) {
    const Problem problem{.operation = Operation::gemm_all_reduce, .m = 4096, .n = n, .k = 64, .ranks = 2};
    return copied_rows(make_plans(problem, {.strategy = Strategy::store, .rounds = 2})[0]);
  };
  EXPECT_EQ(copied(2048), (std::vector<Region>{{.row = 1024, .rows = 1024}, {.row = 3072, .rows = 1024}}));
  EXPECT_EQ(copied(512), (std::vector<Region>{{.rows = 4096}}));
}

TEST(ResultRows, OfAnAllReduceAreTheOtherRanksSlices) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 512, .n = 256, .k = 64, .ranks = 2};
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    const std::vector<Plan> plans = make_plans(problem, {.strategy = strategy});
    EXPECT_EQ(rows_from_peers(plans[0]), (std::vector<Region>{{.row = 256, .rows = 256}})) << name(strategy);
    EXPECT_EQ(rows_from_peers(plans[1]), (std::vector<Region>{{.rows = 256}})) << name(strategy);
  }
}

}  // namespace
}  // namespace flashoverlap
