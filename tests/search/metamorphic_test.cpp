// What must hold between predictions, whatever they are: of a problem and a larger one, of a machine and a
// faster one, of the search and the simulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "flashoverlap/validate.hpp"
#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "model/operand_lines.hpp"
#include "model/operand_reads.hpp"
#include "model/shared_wave.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "support/large_problems.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::base_seed;
using testing::describe;
using testing::LargeProblems;
using testing::with_transfers;

constexpr double tolerated = 1.005;

double simulated_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  return simulate(make_plans(problem, schedule), machine).latency_us;
}

double chosen_us(const Problem& problem, const Machine& machine) {
  return search_schedules(problem, machine).front().predicted_us;
}

Machine with_cheaper_launches(Machine machine) {
  machine.launch_microseconds /= 3;
  machine.signal_microseconds /= 3;
  return machine;
}

/// One whose tiles take no longer while their rank sends.
Machine without_slowdowns(Machine machine) {
  machine.copy_slowdown = machine.store_slowdown = 1;
  machine.collective_slowdowns.clear();
  return machine;
}

/// Twice as long, or three times where rows of twice their length would begin at other places of lines of 64
/// elements: where they begin at more even ones, more work can take less time (operand_lines.hpp).
std::int64_t longer(std::int64_t row) { return row % 64 == 0 ? 2 * row : 3 * row; }

/// m, n and k two or three times as large.
std::vector<Problem> larger(const Problem& problem) {
  std::vector<Problem> problems(3, problem);
  problems[0].m *= 2;
  problems[1].n = longer(problem.n);
  problems[2].k = longer(problem.k);
  return problems;
}

bool has_one_group(const Schedule& schedule, const Problem& problem) {
  return schedule.strategy == Strategy::sequential ||
         (schedule.groups.empty() && schedule.rounds == 1 &&
          schedule.waves_per_group >= wave_count(schedule, entry_count(schedule, problem.m, problem.n)));
}

/// Where tiles are shared, those of a larger matrix only stay one group if they are all shared too: those of
/// whole waves are sent before. And what is sent in slices begins when sums have been shared, which can take
/// less of more tiles.
bool stays_one_group(const Schedule& schedule, const Problem& more) {
  if (!schedule.share_k) return true;
  const bool in_slices = schedule.strategy != Strategy::sequential && schedule.shots == 0;
  return !in_slices && product_count(make_plan(more, schedule, 0)) <= workers(schedule);
}

/// More tiles can take less of this: each is shared by fewer workers, or by as many at the same places of k.
double sharing_us(const Problem& problem, int rank, const Schedule& schedule, const Machine& machine,
                  std::int64_t tiles, double longer_us = 0) {
  const Shape gemm = gemm_shape(problem, rank);
  const std::int64_t shared = tiles % workers(schedule);
  if (!schedule.share_k || shared == 0) return 0;
  const double waves = static_cast<double>(tiles) / workers(schedule);
  const double wave_us = tile_entry_microseconds(problem, rank, schedule, machine, waves) + longer_us / waves;
  return sharing_microseconds(machine, kernel_tile(schedule), gemm, problem.k, shared, workers(schedule),
                              wave_us);
}

/// What the memory takes for a GEMM at least.
double read_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  const Shape gemm = gemm_shape(problem, 0);
  const bool at_once = schedule.strategy == Strategy::sequential || schedule.shots > 0;
  return at_once ? memory_microseconds(machine, kernel_tile(schedule), gemm, problem.k,
                                       schedule.multiprocessors, schedule.share_k)
                 : least_memory_microseconds(machine, gemm, problem.k);
}

/// Where a GEMM waits for the memory, more waves each read a part of the operands, and the first slices are
/// done sooner: by less than one wave takes with fewer, or in one shot than the link takes for all tiles.
double sooner_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  const Shape gemm = gemm_shape(problem, 0);
  if (schedule.strategy == Strategy::sequential || gemm.rows == 0) return 0;
  const auto waves = static_cast<double>(wave_count(schedule, entry_count(schedule, gemm.rows, gemm.cols)));
  const double wave_us = tile_entry_microseconds(problem, 0, schedule, machine, waves);
  if (waves * wave_us >= 1.001 * read_us(problem, schedule, machine)) return 0;
  if (schedule.shots == 0) return wave_us;
  const Plan plan = make_plan(problem, schedule, 0);
  double bytes = 0;
  for (const Tile& tile : plan.tiles) bytes += bytes_to_peers(plan, tile);
  return std::min(wave_us, tiles_stored_microseconds(machine, problem, bytes, /*to_all=*/false));
}

/// Fewer tiles than multiprocessors do not draw the memory's whole rate, and more of them may read the same
/// sooner.
double slowly_read_us(const Problem& problem, const Problem& more, const Schedule& schedule,
                      const Machine& machine) {
  if (gemm_shape(problem, 0).rows == 0) return 0;
  return std::max(0.0, read_us(problem, schedule, machine) - read_us(more, schedule, machine));
}

/// Tiles that begin while their rank sends are slower. What is sent at another time can slow one wave more at
/// either end. Copies and p2p send to one peer at a time, and a rank that was slowed holds up the next.
double slowed_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  const Shape gemm = gemm_shape(problem, 0);
  if (gemm.rows == 0) return 0;
  const auto waves = static_cast<double>(wave_count(schedule, entry_count(schedule, gemm.rows, gemm.cols)));
  double slowdown = std::max(machine.copy_slowdown, machine.store_slowdown);
  for (const auto& [cap, slowdowns] : machine.collective_slowdowns) {
    for (const auto& [kind, each] : slowdowns) slowdown = std::max(slowdown, each);
  }
  const bool by_peer = schedule.strategy == Strategy::copy || schedule.strategy == Strategy::p2p;
  const int stretches = by_peer ? problem.ranks - 1 : 1;
  return 2 * stretches * (slowdown - 1) * tile_entry_microseconds(problem, 0, schedule, machine, waves);
}

/// The part of its time that tiles add at most to a transfer, if they are computed all the while.
double slowed_part(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  double part = 0;
  for (const Plan& plan : make_plans(problem, schedule)) {
    for (const Message& message : plan.messages) {
      const TransferTime time =
          transfer_time(plan, message, machine, /*is_capped=*/true, /*follows_at_once=*/false);
      if (time.during_gemm_us > 0) part = std::max(part, 1 - time.alone_us / time.during_gemm_us);
    }
  }
  return part;
}

/// A GEMM of one wave takes longer for it than one of several for each of theirs. One may be left when the
/// last transfer ends, and one may have slowed that transfer.
double lone_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  const auto wave_us = [&](double waves) {
    return unaligned_wave_microseconds(machine, {kernel_tile(schedule), schedule.share_k},
                                       gemm_shape(problem, 0), problem.k, problem.b_layout, waves,
                                       schedule.multiprocessors);
  };
  constexpr double many = 100;
  const double longer_us = std::max(0.0, wave_us(1) - wave_us(many));
  return longer_us == 0 ? 0 : (1 + slowed_part(problem, schedule, machine)) * longer_us;
}

/// A link serves what comes first (docs/machine-model.md). In several rounds by tiles, blocks whose partial
/// results have come sooner get ahead of others, and send a tile of the next round before those send theirs
/// of this one: by as long as the link takes for a wave. In one round and from several ranks, each of them
/// may send a tile that another one waits for a place later; so may a rank in one shot, whose two tiles that
/// end at the same time change places.
double overtaken_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  if (schedule.strategy != Strategy::store || communicates_first(problem.operation)) return 0;
  const int in_one_round = std::max(schedule.shots > 0 ? 2 : 0, problem.ranks > 2 ? problem.ranks - 1 : 0);
  const int tiles = schedule.rounds > 1 ? workers(schedule) : in_one_round;
  const double bytes = 1.0 * tiles * entry_rows(schedule) * schedule.tile_cols * size_of(problem.data_type);
  return tiles_stored_microseconds(machine, problem, bytes, /*to_all=*/false);
}

/// AllReduce by tiles sends partial results, which one rank waits for, and sums, which nobody waits for. Sums
/// that are sent sooner can hold up partial results, by as long as the link takes for the sums of one rank.
double held_up_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  if (problem.operation != Operation::gemm_all_reduce || schedule.strategy != Strategy::store) return 0;
  if (schedule.shots == 1) return 0;  // every rank sums by itself
  double most_bytes = 0;
  for (const Plan& plan : make_plans(problem, schedule)) {
    double bytes = 0;
    for (const Tile& tile : plan.tiles) bytes += tile.rank == every_rank ? bytes_to_peers(plan, tile) : 0;
    most_bytes = std::max(most_bytes, bytes);
  }
  return tiles_stored_microseconds(machine, problem, most_bytes, /*to_all=*/true);
}

// One schedule on a better machine, or with more to do. Groups are counted in waves, so that they only stay
// the same parts of a larger matrix where there is one.
TEST(MetamorphicTest, AScheduleIsNotFasterWithMoreWorkNorSlowerOnAFasterMachine) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  for (int round = 0; round < 80; ++round) {
    const Problem problem = problems.next();
    const bool is_slowed = round % 2 == 0;
    const Machine machine = is_slowed ? problems.machine() : without_slowdowns(problems.machine());
    const Machine with_links = with_transfers(machine, 0.01 * problems.between(50, 95));
    const Machine with_launches = with_cheaper_launches(machine);
    std::vector<Candidate> candidates = search_schedules(problem, machine, {.own_result = true});
    for (std::size_t i = 0; i < candidates.size(); i += 4) {
      const auto& [schedule, us] = candidates[i];
      SCOPED_TRACE(describe(problem, machine) + " " + describe({problem, schedule}));
      const double held_us = held_up_us(problem, schedule, machine) +
                             overtaken_us(problem, schedule, machine) + slowed_us(problem, schedule, machine);
      EXPECT_LE(simulated_us(problem, schedule, with_links), us * tolerated + held_us);
      EXPECT_LE(simulated_us(problem, schedule, with_launches), us * tolerated + held_us);
      const std::vector<Problem> more = larger(problem);
      EXPECT_GE(simulated_us(more[2], schedule, machine) * tolerated + held_us, us);
      if (!has_one_group(schedule, problem)) continue;
      Schedule whole = schedule;
      whole.waves_per_group = 1 << 20;
      const auto whole_us = [&](const Problem& each) {
        const std::vector<Plan> plans = make_plans(each, whole);
        return simulated_us(each, whole, machine) -
               sharing_us(each, 0, whole, machine, product_count(plans.front()));
      };
      for (const Problem& each : {more[0], more[1]}) {
        if (!stays_one_group(whole, each)) continue;
        const double allowed_us = held_us + sooner_us(problem, whole, machine) +
                                  slowly_read_us(problem, each, whole, machine) +
                                  lone_us(problem, whole, machine);
        EXPECT_GE(whole_us(each) * tolerated + allowed_us, whole_us(problem)) << each.m << " " << each.n;
      }
    }
  }
}

// What the search chooses may get a little slower where it should get faster, as it does not try all
// schedules, and as a wave is the least that can wait for a part of what is gathered: where a gathered
// operand meets a narrow one, a wider one makes finer groups possible, and a larger k more parts of it
// (docs/machine-model.md).
TEST(MetamorphicTest, TheChoiceIsNotFasterWithMoreWorkNorSlowerOnAFasterMachine) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  // Few tiles, of 64 x 128, are shared by three workers or more, whose sums take that much longer than those
  // of two, which twice as many tiles have (model/shared_wave.cpp).
  constexpr double parts_us = 3;
  int compared = 0;
  std::vector<std::string> broken;
  for (int round = 0; round < 50; ++round) {
    const Problem problem = problems.next();
    const Machine machine = problems.machine();
    const double us = chosen_us(problem, machine);
    const auto expect_no_less = [&](double more_us, double less_us, std::string_view what) {
      ++compared;
      EXPECT_LE(less_us, more_us * 1.1 + parts_us) << what << ": " << describe(problem, machine);
      if (less_us > more_us * tolerated)
        broken.push_back(fmt::format("{} {:.3f}: {}", what, less_us / more_us, describe(problem, machine)));
    };
    const double faster_links = 0.01 * problems.between(50, 95);
    expect_no_less(us, chosen_us(problem, with_transfers(machine, faster_links)), "bandwidth");
    expect_no_less(us, chosen_us(problem, with_cheaper_launches(machine)), "launch");
    const std::vector<Problem> more = larger(problem);
    expect_no_less(chosen_us(more[0], machine), us, "2m");
    expect_no_less(chosen_us(more[1], machine), us, "2n");
    expect_no_less(chosen_us(more[2], machine), us, "2k");
  }
  EXPECT_LE(50 * static_cast<int>(broken.size()), compared) << fmt::format("{}", fmt::join(broken, "\n"));
}

// More ranks take longer for the same matrix per rank, measured world size or not.
TEST(MetamorphicTest, MoreRanksAreNotFaster) {
  for (const std::string& name : preset_names()) {
    const Machine machine = preset(name);
    for (const auto& [kind, curves] : machine.collectives) {
      for (const double bytes : {1e4, 1e6, 3e7, 2e8, 1.8e9}) {
        for (int ranks = 2; ranks < 16; ++ranks) {
          EXPECT_LE(machine.collective_microseconds(kind, ranks, bytes),
                    machine.collective_microseconds(kind, ranks + 1, bytes) * (1 + 1e-12))
              << name << " " << flashoverlap::name(kind) << " " << bytes << " bytes on " << ranks;
        }
      }
    }
  }
}

double gemm_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  double slowest_us = 0;
  for (const Plan& plan : make_plans(problem, schedule)) {
    const std::int64_t tiles = std::ranges::count(plan.tiles, false, &Tile::only_adds);
    const double waves =
        schedule.share_k ? static_cast<double>(tiles) / workers(schedule) : wave_count(schedule, tiles);
    const double waves_us = waves * tile_entry_microseconds(problem, plan.rank, schedule, machine, waves);
    const double narrow_us = narrow_groups_microseconds(plan, machine, workers(schedule), waves_us);
    const double us =
        waves_us + narrow_us + sharing_us(problem, plan.rank, schedule, machine, tiles, narrow_us);
    slowest_us = std::max(slowest_us, us);
  }
  return gemm_start_microseconds(machine, predicts_cublas(machine, problem, schedule)) + slowest_us;
}

// Transfers that take no time leave the waves of the GEMM. Where tiles wait for tiles of other ranks, whose
// slices are larger, some schedules take longer, but not the best.
TEST(MetamorphicTest, WithoutCostsOfCommunicationTheGemmRemains) {
  constexpr double nothing = 1e-9;
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  for (int round = 0; round < 40; ++round) {
    const Problem problem = problems.next();
    Machine machine = problems.machine();
    const auto make_free = [](CurvesByRanks& curves) {
      for (auto& [ranks, curve] : curves) curve = {{{1, nothing}, {1e15, 2 * nothing}}};
    };
    for (auto& [kind, curves] : machine.collectives) make_free(curves);
    for (auto* const by_cap : {&machine.capped, &machine.during_gemm, &machine.capped_for_callers,
                               &machine.during_gemm_for_callers}) {
      by_cap->clear();
    }
    make_free(machine.copy_engine);
    make_free(machine.store);
    machine.launch_microseconds = machine.signal_microseconds = nothing;
    machine = without_slowdowns(machine);
    machine.memory_gigabytes_per_second = 1e15;
    const std::vector<Candidate> candidates = search_schedules(problem, machine);
    double least_us = std::numeric_limits<double>::infinity();
    for (const auto& [schedule, us] : candidates) {
      SCOPED_TRACE(describe(problem, machine) + " " + describe({problem, schedule}));
      const double alone_us = gemm_us(problem, schedule, machine);
      EXPECT_GE(us, alone_us - 1e-3);
      if (schedule.shots > 0) continue;  // adding up is work too
      // Of fewer multiprocessors each has more of what all load from.
      // Tiles of a shared wave end together, and what waits for the first of them begins at the end.
      const bool ends_together = schedule.share_k && schedule.strategy != Strategy::sequential;
      if (schedule.multiprocessors == machine.multiprocessors && !ends_together)
        least_us = std::min(least_us, alone_us);
      if (schedule.strategy == Strategy::sequential || schedule.strategy == Strategy::signal) {
        EXPECT_NEAR(us, alone_us, 1e-3);
      }
    }
    EXPECT_LE(candidates.front().predicted_us, std::max(least_us, machine.gemm_launch_microseconds) + 1e-3)
        << describe(problem, machine);
  }
}

TEST(MetamorphicTest, WhatTheSearchReportsIsWhatItsSchedulesTake) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  for (int round = 0; round < 40; ++round) {
    const Problem problem = problems.next();
    const Machine machine = problems.machine();
    SCOPED_TRACE(describe(problem, machine));
    const SearchSpace space{.layouts = {Layout::natural, Layout::tiled}, .own_result = true};
    const std::vector<Candidate> found = search_schedules(problem, machine, space);
    EXPECT_TRUE(std::ranges::is_sorted(found, {}, &Candidate::predicted_us));
    EXPECT_TRUE(std::ranges::any_of(
        found, [](const Candidate& each) { return each.schedule.strategy == Strategy::sequential; }));
    const std::vector<Candidate> again = search_schedules(problem, machine, space);
    ASSERT_EQ(found.size(), again.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].schedule, again[i].schedule);
      EXPECT_EQ(found[i].predicted_us, simulated_us(problem, found[i].schedule, machine));
    }
  }
}

TEST(MetamorphicTest, EveryCandidateIsAPlanThatCanBeProven) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  for (int round = 0; round < 20; ++round) {
    Problem problem = problems.next();
    const std::int64_t step = std::int64_t{64} * problem.ranks;
    for (std::int64_t* const extent : {&problem.m, &problem.n, &problem.k})
      *extent = problems.between(1, static_cast<int>(1024 / step)) * step;
    const Machine machine = problems.machine();
    for (const auto& [schedule, us] : search_schedules(problem, machine)) {
      EXPECT_NO_THROW(validate(make_plans(problem, schedule)))
          << describe(problem, machine) << " " << describe({problem, schedule});
    }
  }
}

}  // namespace
}  // namespace flashoverlap
