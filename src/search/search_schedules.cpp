#include <algorithm>
#include <set>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "plan/grouping.hpp"
#include "plan/strategies.hpp"
#include "search/kernel_choice.hpp"
#include "search/signalled_schedules.hpp"
#include "search/sliced_schedules.hpp"

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

class Search {
 public:
  Search(const Problem& problem, const Machine& machine, const SearchSpace& space)
      : problem_(problem),
        machine_(machine),
        space_(space),
        comm_multiprocessors_(space.comm_multiprocessors.empty() ? usual_comm_multiprocessors(machine)
                                                                 : space.comm_multiprocessors) {}

  std::vector<Candidate> run() {
    std::vector<Candidate> candidates;
    for (const Strategy strategy : space_.strategies) {
      for (const Layout layout : space_.layouts) {
        if (!is_possible(strategy, layout)) continue;
        for (Schedule& schedule : schedules_by(strategy, layout)) {
          const double least_us = least_possible_us(schedule);
          candidates.push_back({std::move(schedule), least_us});
        }
      }
    }
    require(!candidates.empty(), "strategies", fmt::format("{} strategies", space_.strategies.size()),
            "must hold one that the problem and the machine allow");
    std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
    simulate_likeliest(candidates);
    // Before others that are as fast, which have more that can go wrong.
    std::ranges::stable_partition(candidates, is_sequential);
    std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
    return candidates;
  }

 private:
  static bool is_sequential(const Candidate& candidate) {
    return candidate.schedule.strategy == Strategy::sequential;
  }

  bool is_possible(Strategy strategy, Layout layout) const {
    if (strategy == Strategy::sequential) return layout == Layout::natural;
    if (problem_.ranks == 1 || (pushes_to_peers(strategy) && !machine_.peer_access)) return false;
    return supports(problem_, strategy, layout);
  }

  std::vector<Schedule> schedules_by(Strategy strategy, Layout layout) const {
    if (strategy == Strategy::sequential) {
      constexpr double near =
          1.15;  // the simulator may prefer another kernel than the choice of kernels does
      return kernel_schedules(machine_, problem_, strategy, layout, machine_.multiprocessors, 0, near);
    }
    if (strategy == Strategy::signal && !communicates_first(problem_.operation))
      return signalled_schedules(problem_, machine_, layout, comm_multiprocessors_);
    return sliced_schedules(problem_, machine_, strategy, comm_multiprocessors_);
  }

  /// What the GEMM takes on the multiprocessors that the schedule leaves it.
  double least_possible_us(const Schedule& schedule) const {
    const Shape gemm = gemm_shape(problem_, 0);
    return expected_microseconds(machine_, kernel_tile(schedule), gemm, problem_.k, problem_.b_layout,
                                 std::max(schedule.multiprocessors, schedule.cluster_rows));
  }

  /// In this order, as long as there are not too many tiles to plan: `sequential` in any case, and each
  /// strategy at least once.
  void simulate_likeliest(std::vector<Candidate>& candidates) const {
    constexpr std::int64_t most_tiles = 400'000;
    std::vector<Candidate> simulated;
    std::int64_t tiles = 0;
    const auto is_new = [&](Strategy strategy) {
      return std::ranges::none_of(simulated,
                                  [&](const Candidate& each) { return each.schedule.strategy == strategy; });
    };
    for (Candidate& candidate : candidates) {
      if (tiles > most_tiles && !is_new(candidate.schedule.strategy)) continue;
      const Shape gemm = gemm_shape(problem_, 0);
      tiles += problem_.ranks * entry_count(candidate.schedule, gemm.rows, gemm.cols);
      candidate.predicted_us = simulate(make_plans(problem_, candidate.schedule), machine_).latency_us;
      simulated.push_back(std::move(candidate));
    }
    candidates = std::move(simulated);
  }

  const Problem& problem_;
  const Machine& machine_;
  const SearchSpace& space_;
  std::vector<int> comm_multiprocessors_;
};

}  // namespace

std::vector<Candidate> search_schedules(const Problem& problem, const Machine& machine,
                                        const SearchSpace& space) {
  validate(problem);
  validate(machine);
  return Search(problem, machine, space).run();
}

std::vector<Candidate> shortlist(const std::vector<Candidate>& candidates, std::size_t count) {
  std::set<Strategy> strategies;
  std::vector<bool> listed(candidates.size());
  std::size_t left = count;  // the first of all is the first of its strategy
  const auto list = [&](auto belongs) {
    for (std::size_t i = 0; i < candidates.size() && left > 0; ++i) {
      if (listed[i] || !belongs(candidates[i])) continue;
      listed[i] = true;
      --left;
    }
  };
  list([&](const Candidate& each) { return strategies.insert(each.schedule.strategy).second; });
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
