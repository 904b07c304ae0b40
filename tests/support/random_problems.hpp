// Random problems and schedules for property tests, reproducible from a seed.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap::testing {

/// A new seed for every run of the tests, or FLASHOVERLAP_SEED to repeat one.
inline std::uint64_t base_seed() {
  if (const char* seed = std::getenv("FLASHOVERLAP_SEED")) return std::strtoull(seed, nullptr, 10);
  return std::random_device{}();
}

struct Case {
  Problem problem;
  Schedule schedule;
};

/// All that is needed to repeat a failing case.
inline std::string describe(const Case& drawn) {
  const auto& [p, s] = drawn;
  std::string groups;
  for (const int waves : s.groups) groups += std::to_string(waves) + " ";
  return fmt::format(
      "{} {} {} m={} n={} k={} ranks={} {} gathered={} exchange={} a={} b={} destinations={} experts={} "
      "capacity={} tile={}x{} "
      "cluster={} "
      "multiprocessors={} first_multiprocessors={} comm_multiprocessors={} share_k={} raster={} "
      "waves_per_group={} groups=[{}] rounds={} shots={} step_depth={}",
      name(p.operation), name(s.strategy), name(s.layout), p.m, p.n, p.k, p.ranks, name(p.data_type),
      name(p.gathered), name(p.exchange), name(p.a_layout), name(p.b_layout),
      !p.expert_rows.empty()    ? fmt::format("{}", fmt::join(p.expert_rows.front(), ","))
      : !p.destinations.empty() ? "routed"
                                : "equal",
      p.experts, p.capacity, s.tile_rows, s.tile_cols, s.cluster_rows, s.multiprocessors,
      s.first_multiprocessors, s.comm_multiprocessors, s.share_k, s.raster, s.waves_per_group, groups,
      s.rounds, s.shots, s.step_depth);
}

class RandomCases {
 public:
  explicit RandomCases(std::uint64_t seed) : engine_(seed) {}

  /// A case that can be planned; m, n and k are about `largest` at most.
  Case next(int largest = 72) {
    for (;;) {
      Case drawn{.problem = problem(largest), .schedule = {}};
      drawn.schedule = schedule(drawn.problem);
      if (plannable(drawn)) return drawn;
    }
  }

  /// Rows sorted by expert that fit the problem's m, experts and capacity: few, many or none for each.
  std::vector<std::vector<std::int32_t>> expert_rows(const Problem& problem) {
    const bool routed = is_all_to_all(problem.operation);
    const auto ranks = static_cast<std::size_t>(problem.ranks);
    const std::size_t entries = static_cast<std::size_t>(problem.experts) * (routed ? ranks : 1);
    std::vector<std::int64_t> free(ranks, problem.capacity);
    std::vector<std::vector<std::int32_t>> all(ranks, std::vector<std::int32_t>(entries, 0));
    for (std::vector<std::int32_t>& rows : all) {
      const bool whole = !routed || (problem.capacity == 0 && between(0, 1) == 0);
      const int given = static_cast<int>(routed ? problem.m : problem.m / problem.ranks);
      const int most = between(0, static_cast<int>(entries) - 1);  // some may receive nothing
      for (int left = whole ? given : between(0, given); left > 0; --left) {
        const auto entry = static_cast<std::size_t>(between(0, between(0, most)));
        std::int64_t& room = free[entry / static_cast<std::size_t>(problem.experts) % ranks];
        if (problem.capacity > 0 && room-- <= 0) break;
        ++rows[entry];
      }
    }
    return all;
  }

  int between(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }

 private:
  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + between(0, static_cast<int>(choices.size()) - 1));
  }

  Problem problem(int largest) {
    Problem problem{.operation = pick({Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                                       Operation::gemm_all_to_all, Operation::all_gather_gemm,
                                       Operation::all_to_all_gemm}),
                    .m = between(1, largest),
                    .n = between(1, largest),
                    .k = between(1, largest),
                    .ranks = between(1, 8),
                    .data_type = pick({DataType::bf16, DataType::fp16, DataType::fp32}),
                    .gathered = pick({Operand::a, Operand::b}),
                    .exchange = pick({Exchange::rows, Exchange::heads})};
    const auto layout = [&] { return pick({OperandLayout::k_contiguous, OperandLayout::row_contiguous}); };
    if (problem.operation != Operation::all_to_all_gemm) problem.a_layout = layout();
    problem.b_layout = layout();
    if (communicates_first(problem.operation)) problem.k = between(1, 6 * largest);  // several parts of k
    const auto round_up = [&](std::int64_t& extent) {
      extent = (extent + problem.ranks - 1) / problem.ranks * problem.ranks;
    };
    if (problem.operation == Operation::gemm_all_reduce) return problem;
    const bool by_rows = is_all_to_all(problem.operation) && problem.exchange == Exchange::rows;
    const bool gathers_rows = gathers(problem, Operand::a) && !gathers_along_k(problem);
    if ((by_rows || gathers_rows) && between(0, 2) == 0) {
      if (gathers_rows) round_up(problem.m);
      problem.experts = between(1, 5);
      if (by_rows && between(0, 1) == 0) problem.capacity = between(1, 2 * largest);
      problem.expert_rows = expert_rows(problem);
      return problem;
    }
    const bool routed =
        is_all_to_all(problem.operation) && problem.exchange == Exchange::rows && between(0, 2) > 0;
    if (!routed) {
      round_up(problem.m);
      round_up(problem.n);
      round_up(problem.k);
      return problem;
    }
    const bool sorted = problem.operation == Operation::all_to_all_gemm || between(0, 1) == 0;
    const int most = between(0, problem.ranks - 1);  // some ranks may receive nothing
    for (int source = 0; source < problem.ranks; ++source) {
      std::vector<std::int32_t>& rows = problem.destinations.emplace_back();
      for (std::int64_t row = 0; row < problem.m; ++row) rows.push_back(between(0, most));
      if (sorted) std::sort(rows.begin(), rows.end());
    }
    return problem;
  }

  Schedule schedule(const Problem& problem) {
    Schedule schedule{.strategy = pick({Strategy::sequential, Strategy::signal, Strategy::copy,
                                        Strategy::store, Strategy::p2p}),
                      .layout = pick({Layout::natural, Layout::tiled}),
                      .tile_rows = between(1, 24),
                      .tile_cols = between(1, 24),
                      .cluster_rows = between(1, 2),
                      .step_depth = between(1, 96),
                      .multiprocessors = between(2, 12),
                      .raster = between(1, 5),
                      .waves_per_group = between(1, 4)};
    if (!supports(problem, schedule.strategy, schedule.layout)) schedule.layout = Layout::natural;
    if (!supports(problem, schedule.strategy, schedule.layout))
      schedule.strategy = pick({Strategy::copy, Strategy::store});
    if (schedule.layout == Layout::tiled && problem.operation == Operation::gemm_reduce_scatter) {
      schedule.tile_rows = problem.ranks * between(1, 3);
    }
    if (gathers_along_k(problem) && between(0, 1) == 0)  // then tiles begin with their own part
      schedule.step_depth = static_cast<int>(problem.k / problem.ranks);
    if (works_in_rounds(problem, schedule.strategy)) schedule.rounds = between(1, 4);
    const bool sums_by_itself =
        schedule.strategy == Strategy::sequential && schedule.layout == Layout::natural &&
        !communicates_first(problem.operation) && schedule.cluster_rows == 1 && !schedule.share_k;
    if (most_shots_of(problem) > 0 && (schedule.strategy == Strategy::store || sums_by_itself) &&
        between(0, 1) == 0) {
      schedule.shots = between(1, most_shots_of(problem));
      schedule.rounds = 1;
      if (schedule.shots == 1 && supports(problem, schedule.strategy, Layout::partial) && between(0, 1) == 0)
        schedule.layout = Layout::partial;
    }
    if (schedule.strategy == Strategy::signal && !communicates_first(problem.operation) && between(0, 1) == 0)
      schedule.first_multiprocessors = schedule.multiprocessors + between(0, 4);
    if (schedule.strategy == Strategy::signal && between(0, 1) == 0)
      schedule.groups = partition(problem, schedule);
    return schedule;
  }

  std::vector<int> partition(const Problem& problem, Schedule schedule) {
    std::vector<int>& groups = schedule.groups;
    try {
      const int first = between(1, grouped_waves(problem, schedule));
      groups = {first};  // the number of waves depends on it
      const int waves = grouped_waves(problem, schedule);
      groups = {std::min(first, waves)};
      for (int left = waves - groups.front(); left > 0; left -= groups.back())
        groups.push_back(between(1, left));
    } catch (const InvalidArgument&) {  // not `plannable`
    }
    return groups;
  }

  static bool plannable(const Case& drawn) {
    try {
      make_plan(drawn.problem, drawn.schedule, 0);
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  }

  std::mt19937_64 engine_;
};

}  // namespace flashoverlap::testing
