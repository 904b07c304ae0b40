#include "search/sliced_schedules.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include "flashoverlap/planner.hpp"
#include "model/costs.hpp"
#include "plan/grouping.hpp"
#include "search/kernel_choice.hpp"
#include "search/prediction.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

std::vector<int> useful_counts(const Problem& problem, const Machine& machine, Strategy strategy,
                               const std::vector<int>& comm_multiprocessors) {
  Schedule whole = kernel_schedule(machine, problem, strategy, Layout::natural, machine.multiprocessors, 0);
  whole.tile_rows = whole.tile_cols = max_tile_side;  // few to plan
  switch (multiprocessor_use(problem, whole, machine)) {
    case MultiprocessorUse::transfers: return comm_multiprocessors;
    case MultiprocessorUse::raises: return {raising_multiprocessors};
    case MultiprocessorUse::nothing: break;
  }
  return {0};
}

/// Where the GEMM has many waves, the two least that store what it waits for in its time, or else the
/// greatest.
std::vector<int> sufficient(const Problem& problem, const Machine& machine, std::vector<int> counts) {
  constexpr std::ptrdiff_t few = 2;
  const Schedule fastest = kernel_schedule(machine, problem, Strategy::store, Layout::natural,
                                           machine.multiprocessors - counts.front(), counts.front());
  if (std::ssize(counts) <= few || has_few_waves(fastest, {problem.m, problem.n})) return counts;
  std::ranges::sort(counts);
  const double gemm_us = expected_gemm_us(machine, problem, fastest);
  const auto is_enough = [&](int count) {
    Schedule schedule = fastest;
    schedule.comm_multiprocessors = count;
    return least_store_microseconds(schedule, machine, most_sent_bytes(problem)) < gemm_us;
  };
  const auto first = std::min(std::ranges::find_if(counts, is_enough), counts.end() - few);
  return {first, first + few};
}

/// Of what is grouped: a slice, or for `signal` the whole GEMM.
int waves(const Problem& problem, const Schedule& schedule) {
  if (schedule.strategy == Strategy::signal) return grouped_waves(problem, schedule);
  if (gathers_along_k(problem)) return wave_count(schedule, entry_count(schedule, problem.m, problem.n));
  const std::int64_t parts =
      std::int64_t{problem.ranks} * (communicates_first(problem.operation) ? 1 : schedule.rounds);
  const bool by_cols = gathers(problem, Operand::b);
  const std::int64_t entries = by_cols ? entry_count(schedule, problem.m, divide_up(problem.n, parts))
                                       : entry_count(schedule, divide_up(problem.m, parts), problem.n);
  return wave_count(schedule, entries);
}

/// More would leave some empty, or, where an operand is gathered, make parts of k that are too small for the
/// links. Parts of k are for the tiles that come first and last, which are few where there are many waves.
std::int64_t most_rounds(const Problem& problem, const Schedule& schedule) {
  constexpr std::int64_t least_depth = 256;
  if (!works_in_rounds(problem, schedule.strategy)) return 1;
  if (communicates_first(problem.operation)) {
    return has_few_waves(schedule, {problem.m, problem.n}) && !schedule.share_k
               ? std::max<std::int64_t>(1, problem.k / least_depth)
               : 1;
  }
  if (problem.operation == Operation::gemm_all_reduce)
    return most_shared_rounds(schedule, problem.m, problem.ranks);
  return divide_up(divide_up(problem.m, problem.ranks), entry_rows(schedule));
}

constexpr double any = std::numeric_limits<double>::infinity();  // times the least expected time

std::vector<Schedule> suitable_kernels(const Problem& problem, const Machine& machine, Strategy strategy,
                                       int multiprocessors, int comm_multiprocessors, double near) {
  std::vector<Schedule> all = kernel_schedules(machine, problem, strategy, Layout::natural, multiprocessors,
                                               comm_multiprocessors, near);
  if (strategy == Strategy::store && !communicates_first(problem.operation))
    std::erase_if(all, [](const Schedule& each) { return !stores_whole_lines(each); });
  return all;
}

/// The two kernels that are expected to be fastest, as predictions are off by more than these differ, and
/// what is late delays one more than the other; and where the first makes few waves, the one with the
/// smallest tiles: more waves leave more to communicate concurrently. Slow links have more to gain.
std::vector<Schedule> kernels(const Problem& problem, const Machine& machine, Strategy strategy,
                              int left_free) {
  const int few_waves = strategy == Strategy::p2p ? 4 : 2;
  const bool stores_tiles = strategy == Strategy::store && !communicates_first(problem.operation);
  std::vector<Schedule> all =
      suitable_kernels(problem, machine, strategy, machine.multiprocessors - left_free, left_free, any);
  // Those that share k cannot gather in parts of it, and come in addition.
  const auto shares = [](const Schedule& each) { return each.share_k; };
  const std::optional<Schedule> sharing = shares(all.front()) ? std::optional(all.front()) : std::nullopt;
  std::erase_if(all, shares);
  const double most_us =
      (stores_tiles ? any : near_kernels) * expected_gemm_us(machine, problem, all.front());
  std::erase_if(all,
                [&](const Schedule& each) { return expected_gemm_us(machine, problem, each) > most_us; });
  std::vector<Schedule> chosen{all.front()};
  if (all.size() > 1) chosen.push_back(all[1]);
  const auto area = [](const Schedule& each) { return each.tile_rows * each.tile_cols; };
  const Schedule& smallest = *std::ranges::min_element(all, {}, area);
  if (std::ranges::count(chosen, area(smallest), area) == 0 && waves(problem, all.front()) <= few_waves)
    chosen.push_back(smallest);
  if (sharing) chosen.push_back(*sharing);
  return chosen;
}

/// Whether every slice has as many waves, as lists of groups need. Experts cut slices at their rows.
bool slices_are_alike(const Problem& problem, const Schedule& schedule) {
  if (is_all_to_all(problem.operation) || !problem.expert_rows.empty()) return false;
  if (problem.operation == Operation::all_gather_gemm) return true;
  if (problem.operation == Operation::gemm_reduce_scatter && schedule.rounds == 1) return true;
  return problem.m % (std::int64_t{problem.ranks} * schedule.rounds * entry_rows(schedule)) == 0;
}

/// A wave, then groups of `size`, and a wave at last: a short first group soon begins the communication, a
/// short last one leaves little to compute after it, and few groups between them cost NCCL little.
std::vector<int> groups_between_waves(int waves, int size) {
  std::vector<int> groups{1};
  for (int left = waves - 2; left > 0; left -= groups.back()) groups.push_back(std::min(size, left));
  groups.push_back(1);
  return groups;
}

/// The fewest waves of a group of an operand that is gathered along k. Each group reads all of the other one,
/// which takes power (`narrow_groups_microseconds`); few waves have little to lose by that.
int least_group_along_k(const Problem& problem, const Schedule& schedule, int waves) {
  constexpr int least_blocks = 3;
  const std::int64_t blocks = problem.gathered == Operand::a ? divide_up(problem.m, entry_rows(schedule))
                                                             : divide_up(problem.n, schedule.tile_cols);
  return static_cast<int>(divide_up(std::int64_t{least_blocks} * waves, blocks));
}

/// Of groups of `count` waves that are worth a trial, in waves.
std::set<int> group_sizes(const Problem& problem, const Schedule& schedule, int count) {
  std::set<int> sizes;
  // Along k the first wave needs the whole first group when it has computed its own part of k.
  for (const int groups : gathers_along_k(problem) ? std::array{4, 8, 16, 32} : std::array{1, 2, 4, 8})
    sizes.insert(static_cast<int>(std::max<std::int64_t>(1, divide_up(count, groups))));
  if (!gathers_along_k(problem)) return sizes;
  const int least = std::min(least_group_along_k(problem, schedule, count), *sizes.rbegin());
  std::erase_if(sizes, [&](int size) { return size < least; });
  return sizes;
}

/// A schedule with each way to group that is worth a trial.
void add_groupings(std::vector<Schedule>& schedules, const Problem& problem, Schedule schedule) {
  const int count = waves(problem, schedule);
  for (const int size : group_sizes(problem, schedule, count)) {
    schedule.waves_per_group = size;
    schedules.push_back(schedule);
  }
  if (schedule.strategy != Strategy::p2p || !slices_are_alike(problem, schedule)) return;
  for (const int size : {2, 4}) {
    if (size > count - 2) break;
    schedule.groups = groups_between_waves(count, size);
    schedules.push_back(schedule);
  }
}

}  // namespace

bool has_few_waves(const Schedule& schedule, const Shape& gemm) {
  constexpr int many_waves = 8;
  return wave_count(schedule, entry_count(schedule, gemm.rows, gemm.cols)) <= many_waves;
}

std::vector<Schedule> sliced_schedules(const Problem& problem, const Machine& machine, Strategy strategy,
                                       const std::vector<int>& comm_multiprocessors) {
  std::vector<int> counts = useful_counts(problem, machine, strategy, comm_multiprocessors);
  if (communicates_first(problem.operation) && strategy == Strategy::store)
    counts = sufficient(problem, machine, std::move(counts));
  std::vector<Schedule> schedules;
  for (const int count : counts) {
    for (Schedule schedule : kernels(problem, machine, strategy, count)) {
      for (const int rounds : {1, 2, 4, 8}) {
        if (rounds > most_rounds(problem, schedule)) break;
        schedule.rounds = rounds;
        add_groupings(schedules, problem, schedule);
      }
    }
  }
  return schedules;
}

std::vector<Schedule> variants(const Problem& problem, const Machine& machine, const Schedule& schedule) {
  std::vector<Schedule> schedules;
  for (int multiprocessors = schedule.multiprocessors; multiprocessors > 1; multiprocessors /= 2) {
    for (Schedule each : suitable_kernels(problem, machine, schedule.strategy, multiprocessors,
                                          schedule.comm_multiprocessors, any)) {
      each.rounds = std::min(schedule.rounds, static_cast<int>(most_rounds(problem, each)));
      add_groupings(schedules, problem, each);
    }
    if (!communicates_first(problem.operation) || !has_few_waves(schedule, {problem.m, problem.n})) break;
    constexpr int fewest_share = 4;
    if (multiprocessors <= machine.multiprocessors / fewest_share) break;
  }
  return schedules;
}

}  // namespace flashoverlap
