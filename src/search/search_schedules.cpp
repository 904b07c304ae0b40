#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "model/gemm_time.hpp"
#include "model/stream_costs.hpp"
#include "plan/grouping.hpp"
#include "plan/message_needs.hpp"
#include "plan/strategies.hpp"
#include "search/expected_time.hpp"
#include "search/kernel_choice.hpp"
#include "search/shot_schedules.hpp"
#include "search/signalled_schedules.hpp"
#include "search/sliced_schedules.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

/// Those that the machine has curves for; without any, its own number and fewer.
std::vector<int> usual_comm_multiprocessors(const Machine& machine) {
  std::vector<int> counts;
  for (const auto& [count, collectives] : machine.during_gemm) counts.push_back(count);
  for (int count = machine.comm_multiprocessors;
       counts.size() < 3 && machine.during_gemm.empty() && count > 0; count /= 2)
    counts.push_back(count);
  return counts;
}

const std::vector all_strategies{Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::store,
                                 Strategy::p2p};

/// What a schedule must not be dropped for: sums after the GEMM are another way than what the libraries do
/// one after the other.
using Way = std::pair<Strategy, bool>;
Way way_of(const Schedule& schedule) { return {schedule.strategy, sums_after_gemm(schedule)}; }

/// The kernel that computes.
using Kernel = std::tuple<int, int, int, bool>;
Kernel kernel_of(const Schedule& schedule) {
  return {schedule.tile_rows, schedule.tile_cols, schedule.cluster_rows, schedule.share_k};
}

std::vector<Layout> readable_layouts(Operation operation, Reader reader) {
  if (reader == Reader::caller) return {Layout::natural};
  if (operation == Operation::gemm_reduce_scatter) return {Layout::natural, Layout::partial};
  return {Layout::natural, Layout::partial, Layout::tiled};
}

class Search {
 public:
  Search(const Problem& problem, const Machine& machine, const SearchSpace& space)
      : problem_(problem),
        machine_(machine),
        space_(space),
        gemm_(gemm_shape(problem, rank_with_most_rows(problem))),
        layouts_(space.layouts.empty() ? readable_layouts(problem.operation, space.reader) : space.layouts),
        comm_multiprocessors_(space.comm_multiprocessors.empty() ? usual_comm_multiprocessors(machine)
                                                                 : space.comm_multiprocessors) {}

  std::vector<Candidate> run() {
    std::vector<Candidate> candidates;
    for (const Strategy strategy : space_.strategies.empty() ? all_strategies : space_.strategies) {
      for (const Layout layout : layouts_) {
        if (!is_possible(strategy, layout)) continue;
        std::ranges::move(candidates_by(strategy, layout), std::back_inserter(candidates));
      }
    }
    candidates = simulate_likeliest(std::move(candidates));
    require(!candidates.empty(), "strategy", names_of(space_.strategies),
            fmt::format("must hold one that can compute {} {} x {} x {} on {} ranks in layout {} on {}",
                        name(problem_.operation), problem_.m, problem_.n, problem_.k, problem_.ranks,
                        names_of(layouts_), machine_.name));
    std::ranges::move(simulate_likeliest(variants_of_best(candidates)), std::back_inserter(candidates));
    // Before others that are as fast, which have more that can go wrong.
    std::stable_partition(candidates.begin(), candidates.end(), is_simplest);
    std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
    return candidates;
  }

 private:
  static std::string names_of(const auto& values) {
    std::vector<std::string_view> names;
    for (const auto value : values) names.push_back(name(value));
    return names.empty() ? "any" : fmt::format("{}", fmt::join(names, " or "));
  }

  static bool is_simplest(const Candidate& candidate) { return is_by_libraries(candidate.schedule); }

  bool is_possible(Strategy strategy, Layout layout) const {
    if (strategy == Strategy::sequential && layout == Layout::natural) return true;
    if (layout == Layout::partial && !machine_.peer_access) return false;
    if (problem_.ranks == 1 || (pushes_to_peers(strategy) && !machine_.peer_access)) return false;
    return supports(problem_, strategy, layout);
  }

  /// With what they are expected to take.
  std::vector<Candidate> candidates_by(Strategy strategy, Layout layout) const {
    if (layout == Layout::partial) return with_expected_time(partial_schedules(strategy));
    if (strategy == Strategy::signal && !communicates_first(problem_.operation))
      return signalled_schedules(problem_, machine_, layout, comm_multiprocessors_);
    if (strategy != Strategy::sequential) {
      std::vector<Schedule> schedules = sliced_schedules(problem_, machine_, strategy, comm_multiprocessors_);
      if (strategy == Strategy::store)
        std::ranges::move(shot_schedules(problem_, machine_), std::back_inserter(schedules));
      return with_expected_time(std::move(schedules));
    }
    return with_expected_time(with_shots(
        kernel_schedules(machine_, problem_, strategy, layout, machine_.multiprocessors, 0, near_kernels)));
  }

  /// Shots whose sums are left to whoever reads the result.
  std::vector<Schedule> partial_schedules(Strategy strategy) const {
    std::vector<Schedule> schedules =
        strategy == Strategy::store
            ? shot_schedules(problem_, machine_)
            : with_shots(kernel_schedules(machine_, problem_, strategy, Layout::natural,
                                          machine_.multiprocessors, 0, near_kernels));
    std::erase_if(schedules, [](const Schedule& schedule) { return schedule.shots != 1; });
    for (Schedule& schedule : schedules) schedule.layout = Layout::partial;
    return schedules;
  }

  /// And those whose sums are in shots after the GEMM; of either with one kernel where cuBLASLt's time is
  /// predicted, whatever the tiles.
  std::vector<Schedule> with_shots(const std::vector<Schedule>& schedules) const {
    std::vector<Schedule> all = schedules;
    if (predicts_cublas(machine_, problem_, schedules.front())) all.resize(1);
    if (problem_.ranks == 1 || !machine_.peer_access || communicates_first(problem_.operation)) return all;
    // Whatever it takes itself, as it only cuts what cuBLASLt computes into tiles.
    constexpr double any = std::numeric_limits<double>::infinity();
    const std::vector<Schedule> kernels = kernel_schedules(machine_, problem_, Strategy::sequential,
                                                           Layout::natural, machine_.multiprocessors, 0, any);
    const auto one = std::ranges::find_if(
        kernels, [](const Schedule& schedule) { return schedule.cluster_rows == 1 && !schedule.share_k; });
    if (one == kernels.end()) return all;
    Schedule schedule = *one;
    for (schedule.shots = 1; schedule.shots <= most_shots_of(problem_); ++schedule.shots)
      all.push_back(schedule);
    return all;
  }

  /// The best so far of each strategy, if it is near the best of all, with what else may suit its
  /// communication.
  std::vector<Candidate> variants_of_best(std::vector<Candidate> candidates) const {
    std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
    // Where a wave more or less matters, another kernel may take a strategy past the others.
    const double near = has_few_waves(candidates.front().schedule, gemm_) ? 1.2 : 1.1;
    std::set<Strategy> varied{Strategy::sequential};
    if (!communicates_first(problem_.operation)) varied.insert(Strategy::signal);  // has its own search
    std::vector<Schedule> schedules;
    for (const Candidate& each : candidates) {
      if (each.predicted_us > near * candidates.front().predicted_us) break;
      if (each.schedule.shots > 0) continue;
      if (varied.insert(each.schedule.strategy).second)
        std::ranges::move(variants(problem_, machine_, each.schedule), std::back_inserter(schedules));
    }
    std::erase_if(schedules, [&](const Schedule& schedule) {
      return std::ranges::count(candidates, schedule, &Candidate::schedule) > 0;
    });
    return with_expected_time(std::move(schedules));
  }

  std::vector<Candidate> with_expected_time(std::vector<Schedule> schedules) const {
    std::vector<Candidate> candidates;
    for (Schedule& schedule : schedules) {
      const double expected_us = expected_schedule_us(machine_, problem_, gemm_, schedule);
      candidates.push_back({std::move(schedule), expected_us});
    }
    return candidates;
  }

  /// What the reader needs more than for natural rows in the caller's memory.
  double reading_us(std::span<const Plan> plans) const {
    constexpr double partial_result_us = 0.7;  // each, of few rows: fitted on 2 and 4 H200
    if (space_.reader == Reader::caller)
      return space_.own_result ? 0 : result_copy_microseconds(machine_, plans);
    const bool adds_up = plans.front().schedule.layout == Layout::partial;
    return adds_up ? partial_result_us * (problem_.ranks - 1) : 0;
  }

  /// Whether plans of this kind are left out if they `can_be_held_up`.
  bool may_be_left_out(const Schedule& schedule) const {
    return space_.strategies.empty() && machine_.peer_access && schedule.strategy != Strategy::sequential;
  }

  /// By expected time. Groups and rounds change it less than it is off by from kernel to kernel, so each
  /// further schedule of a strategy and a kernel counts as slower than it is.
  static void sort_by_likelihood(std::vector<Candidate>& candidates) {
    constexpr double further = 0.01;
    std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
    std::map<std::pair<Strategy, Kernel>, int> earlier;
    std::vector<std::pair<double, Candidate>> sorted;
    for (Candidate& each : candidates) {
      const int place = earlier[{each.schedule.strategy, kernel_of(each.schedule)}]++;
      sorted.emplace_back(each.predicted_us * (1 + further * place), std::move(each));
    }
    std::ranges::stable_sort(sorted, {}, &std::pair<double, Candidate>::first);
    std::ranges::transform(sorted, candidates.begin(), [](auto& each) { return std::move(each.second); });
  }

  /// With the predicted time, as long as there are not too many tiles to plan, and half as many for those
  /// that are hopeless: variants of the best come later. Each way at least once, but sums after a GEMM, which
  /// has the most tiles then, only if they are expected to be the best.
  std::vector<Candidate> simulate_likeliest(std::vector<Candidate> candidates) {
    constexpr std::int64_t most_tiles = 300'000;
    constexpr double hopeless = 1.3;  // times the best; few are predicted that much below what is expected
    sort_by_likelihood(candidates);
    std::vector<Candidate> simulated;
    for (Candidate& candidate : candidates) {
      const Schedule& schedule = candidate.schedule;
      if (machine_.peer_access && space_.concurrent_collectives && waits_between_rounds(problem_, schedule))
        continue;
      // What messages need does not depend on the rest of a schedule.
      std::optional<bool>& left_out =
          left_out_[{schedule.strategy, schedule.shots > 0, schedule.comm_multiprocessors > 0}];
      if (left_out == true) continue;
      const std::int64_t tiles = problem_.ranks * entry_count(schedule, gemm_.rows, gemm_.cols);
      const double expected_us = candidate.predicted_us;
      const std::int64_t limit = expected_us > hopeless * least_us_ ? most_tiles / 2 : most_tiles;
      const bool is_needed = !simulated_ways_.contains(way_of(schedule)) &&
                             (!sums_after_gemm(schedule) || expected_us < least_us_);
      if (simulated_tiles_ + tiles > limit && !is_needed) continue;
      plans_ = make_plans(problem_, schedule, std::move(plans_));
      if (!left_out) left_out = may_be_left_out(schedule) && can_be_held_up(plans_);
      if (*left_out) continue;
      simulated_ways_.insert(way_of(schedule));
      simulated_tiles_ += tiles;
      candidate.predicted_us = simulated_latency_us(plans_, machine_) + reading_us(plans_);
      least_us_ = std::min(least_us_, candidate.predicted_us);
      simulated.push_back(std::move(candidate));
    }
    return simulated;
  }

  const Problem& problem_;
  const Machine& machine_;
  const SearchSpace& space_;
  Shape gemm_;  ///< of the rank with the most rows
  std::vector<Layout> layouts_;
  std::vector<int> comm_multiprocessors_;
  using Needs = std::tuple<Strategy, bool, bool>;    ///< shots, multiprocessors of their own
  std::map<Needs, std::optional<bool>> left_out_{};  ///< none: not known yet
  std::set<Way> simulated_ways_{};
  std::int64_t simulated_tiles_ = 0;
  double least_us_ = std::numeric_limits<double>::infinity();  ///< predicted
  std::vector<Plan> plans_{};                                  ///< of the last schedule, for their memory
};

}  // namespace

std::vector<Candidate> search_schedules(const Problem& problem, const Machine& machine,
                                        const SearchSpace& space) {
  validate(problem);
  validate(machine);
  for (std::size_t i = 0; i < space.comm_multiprocessors.size(); ++i) {
    const int count = space.comm_multiprocessors[i];
    require(
        count >= 1 && count < machine.multiprocessors, fmt::format("comm_multiprocessors[{}]", i), count,
        fmt::format("must be at least 1 and less than the {} of {}", machine.multiprocessors, machine.name));
  }
  if (space.own_result) return Search(problem, machine, space).run();
  return Search(problem, with_results_of_callers(machine), space).run();
}

std::vector<Candidate> shortlist(const std::vector<Candidate>& candidates, std::size_t count) {
  constexpr double near = 1.15;  // mispredicted by more than that are few
  constexpr std::size_t most_kernels = 6;
  const auto form_of = [](const Schedule& each) {
    return std::tuple(each.strategy, each.shots, each.rounds);
  };
  std::set<Way> ways;
  std::set<Kernel> kernels;
  std::set<decltype(form_of(Schedule{}))> forms;
  const auto pair_of = [](const Schedule& each) { return std::pair(way_of(each), kernel_of(each)); };
  std::set<std::pair<Way, Kernel>> pairs;  // of what is listed
  std::vector<bool> listed(candidates.size());
  std::size_t left = count;
  const auto list = [&](auto belongs) {
    for (std::size_t i = 0; i < candidates.size() && left > 0; ++i) {
      if (listed[i] || !belongs(candidates[i])) continue;
      listed[i] = true;
      pairs.insert(pair_of(candidates[i].schedule));
      --left;
    }
  };
  const auto is_near = [&](const Candidate& each) {
    return each.predicted_us <= near * candidates.front().predicted_us;
  };
  list([&](const Candidate& each) {
    const bool is_new = ways.insert(way_of(each.schedule)).second;
    if (is_new) forms.insert(form_of(each.schedule));
    if (is_new && !is_by_libraries(each.schedule)) kernels.insert(kernel_of(each.schedule));
    return is_new;
  });
  const auto is_near_kernel = [&](const Candidate& each) {
    return is_near(each) && !is_by_libraries(each.schedule);
  };
  list([&](const Candidate& each) {
    return kernels.size() < most_kernels && is_near_kernel(each) &&
           kernels.insert(kernel_of(each.schedule)).second;
  });
  list([&](const Candidate& each) { return is_near(each) && forms.insert(form_of(each.schedule)).second; });
  list([&](const Candidate& each) {
    return is_near_kernel(each) && kernels.contains(kernel_of(each.schedule)) &&
           !pairs.contains(pair_of(each.schedule));
  });
  list([](const Candidate&) { return true; });
  std::vector<Candidate> kept;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (listed[i]) kept.push_back(candidates[i]);
  }
  return kept;
}

Schedule default_schedule(const Problem& problem, const Machine& machine) {
  return search_schedules(problem, machine).front().schedule;
}

}  // namespace flashoverlap
