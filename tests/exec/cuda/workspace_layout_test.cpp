#include "exec/cuda/workspace_layout.hpp"

#include <gtest/gtest.h>

#include <map>

#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/cublas/workspace_bytes.hpp"
#include "plan/enumerators.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t cublas_bytes = cublas_workspace_bytes;

std::vector<Plan> plans_of(Operation operation, Strategy strategy, std::int64_t m = 1024) {
  return make_plans({.operation = operation, .m = m, .n = 512, .k = 256, .ranks = 4},
                    {.strategy = strategy, .multiprocessors = 8, .comm_multiprocessors = 4});
}

WorkspaceBytes bytes_of(const std::vector<Plan>& plans, bool own_result = false) {
  WorkspaceBytes bytes;
  bytes.add(plans, own_result);
  return bytes;
}

TEST(WorkspaceBytes, AreThoseOfTheBuffersByWhoWritesThem) {
  constexpr std::int64_t c = 1024 * 512 * 2;
  constexpr std::int64_t a = 1024 * 256 * 2;

  const WorkspaceBytes collective = bytes_of(plans_of(Operation::gemm_reduce_scatter, Strategy::signal));
  EXPECT_EQ(collective.peer_written, 0);
  EXPECT_EQ(collective.collective, c);  // staging
  EXPECT_EQ(collective.device, 0);

  const WorkspaceBytes stored = bytes_of(plans_of(Operation::gemm_reduce_scatter, Strategy::store));
  EXPECT_EQ(stored.peer_written, c / 4 * 3);  // inbox: a part from each peer
  EXPECT_EQ(stored.collective, 0);

  const WorkspaceBytes copied = bytes_of(plans_of(Operation::all_gather_gemm, Strategy::copy, 4096));
  EXPECT_GE(copied.peer_written, 3 * a);  // gathered
  EXPECT_LE(copied.peer_written, 4 * 4096 * 256 * 2);

  const WorkspaceBytes sequential = bytes_of(plans_of(Operation::gemm_all_reduce, Strategy::sequential));
  EXPECT_EQ(sequential.peer_written, 0);
  EXPECT_EQ(sequential.collective, 0);
  EXPECT_EQ(sequential.device, cublas_bytes);
}

TEST(WorkspaceBytes, HaveTheResultWhereTheOperatorOwnsIt) {
  const auto plans = plans_of(Operation::gemm_all_reduce, Strategy::signal);
  EXPECT_EQ(bytes_of(plans).collective, 0);
  EXPECT_EQ(bytes_of(plans, /*own_result=*/true).collective, 1024 * 512 * 2);
}

TEST(WorkspaceBytes, OfEightyEqualOperatorsAreThoseOfOneButForCounters) {
  for (const Strategy strategy : enumerators<Strategy>) {
    const auto plans = plans_of(Operation::gemm_reduce_scatter, strategy);
    const WorkspaceBytes one = bytes_of(plans);
    WorkspaceBytes all;
    for (int each = 0; each < 80; ++each) all.add(plans);
    EXPECT_EQ(all.counters, 80 * one.counters);
    all.counters = one.counters;
    EXPECT_EQ(all, one) << name(strategy);
  }
}

TEST(WorkspaceBytes, OfDifferentOperatorsAreTheMostOfEachKind) {
  const auto stored = plans_of(Operation::gemm_reduce_scatter, Strategy::store);
  const auto signalled = plans_of(Operation::gemm_reduce_scatter, Strategy::signal);
  const auto larger = plans_of(Operation::gemm_reduce_scatter, Strategy::signal, 2048);
  WorkspaceBytes all = bytes_of(stored);
  all.add(larger);
  all.add(signalled);
  EXPECT_EQ(all.peer_written, bytes_of(stored).peer_written);
  EXPECT_EQ(all.collective, bytes_of(larger).collective);
  EXPECT_EQ(all.counters,
            bytes_of(stored).counters + bytes_of(larger).counters + bytes_of(signalled).counters);
}

/// Of every rank: which memory, from where to where.
TEST(WorkspaceLayout, HoldsEveryBufferOfTheOperatorOnceAndWithinItsBytes) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  testing::RandomCases cases(seed);
  for (int drawn = 0; drawn < 200; ++drawn) {
    const testing::Case each = cases.next();
    const auto plans = make_plans(each.problem, each.schedule);
    const bool own_result = drawn % 2 == 0;
    const WorkspaceLayout layout(plans, own_result);
    for (const Plan& plan : plans) {
      std::map<std::pair<MemoryKind, std::int64_t>, std::int64_t> ends;
      const auto note = [&](const WorkspaceLayout::Place& place, std::int64_t bytes) {
        EXPECT_EQ(place.offset % 256, 0);
        EXPECT_TRUE(ends.emplace(std::pair(place.kind, place.offset), place.offset + bytes).second);
      };
      if (layout.cublas.kind != MemoryKind::elsewhere) note(layout.cublas, cublas_bytes);
      for (const BufferRole role : enumerators<BufferRole>) {
        const auto& place =
            layout.buffers[static_cast<std::size_t>(plan.rank)][static_cast<std::size_t>(role)];
        const Buffer& buffer = plan.buffer(role);
        const std::int64_t bytes =
            buffer.rows * workspace_pitch(plan, role) * size_of(plan.problem.data_type);
        const bool is_callers = role == BufferRole::a || role == BufferRole::b ||
                                (role == BufferRole::out && !own_result && !buffer.peer_written);
        EXPECT_EQ(place.kind == MemoryKind::elsewhere, is_callers || bytes == 0) << name(role);
        EXPECT_EQ(place.kind == MemoryKind::peer_written, buffer.peer_written && bytes > 0) << name(role);
        if (place.kind != MemoryKind::elsewhere) note(place, bytes);
      }
      const std::map<MemoryKind, std::int64_t> limits{{MemoryKind::peer_written, layout.bytes.peer_written},
                                                      {MemoryKind::collective, layout.bytes.collective},
                                                      {MemoryKind::device, layout.bytes.device}};
      for (auto area = ends.begin(); area != ends.end(); ++area) {
        const auto next = std::next(area);
        const MemoryKind kind = area->first.first;
        const bool is_last = next == ends.end() || next->first.first != kind;
        EXPECT_LE(area->second, is_last ? limits.at(kind) : next->first.second);
      }
      EXPECT_GE(layout.bytes.counters, std::ssize(plan.counters) * 4);
    }
  }
}

}  // namespace
}  // namespace flashoverlap
