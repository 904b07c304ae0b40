#include "flashoverlap/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "comm/process_environment.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/gpu_support.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "measure/current_gpu.hpp"
#include "measure/machine_measurement.hpp"
#include "plan/message_needs.hpp"
#include "plan/strategies.hpp"
#include "tune/current_site.hpp"
#include "tune/schedule_trials.hpp"
#include "tune/shared_schedules.hpp"

namespace flashoverlap {
namespace {

void print_line(const std::string& line) { std::fputs(("flashoverlap: " + line + '\n').c_str(), stderr); }

bool is_switched_off() { return environment_variable("FLASHOVERLAP_TUNING") == "off"; }

/// What is tuned.
struct Task {
  Problem problem;
  Reader reader;
};

std::string described(const Task& task) {
  const Problem& problem = task.problem;
  return fmt::format("{} {} x {} x {} on {} ranks{}", name(problem.operation), problem.m, problem.n,
                     problem.k, problem.ranks, task.reader == Reader::norm ? " with a norm" : "");
}

/// As `decided_by_first` tells ranks of it.
std::vector<Candidate> as_candidates(const std::optional<Schedule>& schedule) {
  return schedule ? std::vector<Candidate>{{*schedule, 0}} : std::vector<Candidate>{};
}

/// Whether one differs from the other in m only, and little.
bool is_near(const Problem& one, Problem other) {
  if (row_bucket(one.m) != row_bucket(other.m) || !one.destinations.empty() || !one.expert_rows.empty())
    return false;
  other.m = one.m;
  return one == other;
}

}  // namespace

struct Tuner::State {
  State(const Communicator& communicator, TunerOptions chosen)
      : gpu(communicator),
        options(std::move(chosen)),
        site(current_site(gpu)),
        machine(current_machine(gpu.has_peer_access())) {
    if (!options.log) options.log = print_line;
    if (is_switched_off()) options.measure = false;
    options.measure = gpu.maximum(gpu.is_first() && options.measure ? 1 : 0) > 0;
    if (options.use_cache) open_cache();
    share_machine();
  }

  /// Rank 0's, as hosts may have measured different ones.
  void share_machine() { machine = machine_from_json(shared_text(gpu, machine_to_json(machine))); }

  /// Without a cache everything is tuned anew, which is no reason to fail.
  void open_cache() {
    const auto warn = [this](const std::string& line) { say(line); };
    try {
      cache.emplace(cache_directory(options.cache_directory), site, warn);
      if (site.concurrent_collectives) {
        TuningSite alone = site;
        alone.concurrent_collectives = false;
        cache_alone.emplace(cache_directory(options.cache_directory), alone, warn);
      }
      if (const std::optional<Machine> measured = cache->machine()) machine = *measured;
    } catch (const Error& error) {
      say(fmt::format("the tuning cache cannot be used in full: {}", error.what()));
    }
  }

  void say(const std::string& line) const {
    if (gpu.is_first()) options.log(line);
  }

  void check(const Problem& problem) const {
    validate(problem);
    require(problem.ranks == gpu.ranks(), "ranks", problem.ranks,
            fmt::format("must be {}, those of the communicator", gpu.ranks()));
  }

  /// Whether its tiles may wait for ever next to other collectives.
  bool may_stop(const Problem& problem, const Schedule& schedule) const {
    return machine.peer_access && site.concurrent_collectives && waits_between_rounds(problem, schedule);
  }

  /// Asked of kept schedules too, as an earlier version may have kept what this one refuses.
  bool allows(const Problem& problem, const Schedule& schedule) const {
    if (options.allows && !options.allows(problem, schedule)) return false;
    if (may_stop(problem, schedule)) return false;
    const std::vector<Plan> plans = make_plans(problem, schedule);
    const bool overlaps = schedule.strategy != Strategy::sequential;
    if (machine.peer_access && overlaps && can_be_held_up(plans)) return false;
    return !gpu_obstacle(plans, machine);
  }

  SearchSpace space_of(const Task& task) const {
    return {.reader = task.reader, .concurrent_collectives = site.concurrent_collectives};
  }

  /// Plans no more of them than it must.
  std::optional<Schedule> first_allowed(const Problem& problem, const std::vector<Candidate>& found) const {
    const auto first = std::ranges::find_if(
        found, [&](const Schedule& schedule) { return allows(problem, schedule); }, &Candidate::schedule);
    return first == found.end() ? std::nullopt : std::optional(first->schedule);
  }

  std::vector<Candidate> allowed(const Problem& problem, std::vector<Candidate> found) const {
    std::erase_if(found, [&](const Candidate& each) { return !allows(problem, each.schedule); });
    return found;
  }

  /// On rank 0: what is kept for this task or for one of nearly as many rows.
  std::optional<Schedule> known(const Task& task) const {
    const Problem& problem = task.problem;
    std::vector<TunedPlan> entries;
    for (const std::optional<PlanCache>& each : {std::cref(cache), std::cref(cache_alone)}) {
      if (!each) continue;
      if (const auto same = each->find(problem, task.reader); same && allows(problem, same->schedule))
        return same->schedule;
      std::ranges::move(each->entries(), std::back_inserter(entries));
    }
    std::erase_if(entries, [&](const TunedPlan& entry) {
      return entry.reader != task.reader || may_stop(entry.problem, entry.schedule) ||
             !is_near(problem, entry.problem);
    });
    if (entries.empty()) return std::nullopt;
    const auto distance = [&](const TunedPlan& entry) { return std::abs(entry.problem.m - problem.m); };
    return likeliest_like(task, std::ranges::min_element(entries, {}, distance)->schedule);
  }

  /// Of the same way to overlap; with the same kernel, if there is one.
  std::optional<Schedule> likeliest_like(const Task& task, const Schedule& wanted) const {
    std::vector<Candidate> likely;
    try {
      SearchSpace space = space_of(task);
      space.strategies = {wanted.strategy};
      space.layouts = {wanted.layout};
      likely = search_schedules(task.problem, machine, space);
    } catch (const InvalidArgument&) {
      return std::nullopt;  // nothing by this strategy for these rows
    }
    std::erase_if(likely, [&](const Candidate& each) { return each.schedule.shots != wanted.shots; });
    const auto is_alike = [&](const Candidate& each) {
      return kernel_tile(each.schedule) == kernel_tile(wanted) && each.schedule.share_k == wanted.share_k &&
             each.schedule.rounds == wanted.rounds &&
             each.schedule.comm_multiprocessors == wanted.comm_multiprocessors;
    };
    std::stable_partition(likely.begin(), likely.end(), is_alike);
    return first_allowed(task.problem, likely);
  }

  /// Collective, as all that follow.
  std::optional<Schedule> known_to_first(const Task& task) const {
    const std::vector<Candidate> decided = decided_by_first(gpu, [&] { return as_candidates(known(task)); });
    return decided.empty() ? std::nullopt : std::optional(decided.front().schedule);
  }

  /// What `find` returns on rank 0, on all ranks: one or more.
  std::vector<Candidate> found_by_first(const Task& task,
                                        const std::function<std::vector<Candidate>()>& find) const {
    std::vector<Candidate> found = decided_by_first(gpu, find);
    if (found.empty()) throw InvalidArgument("problem", described(task), obstacle(task.problem));
    return found;
  }

  /// Why nothing is allowed, as far as the GPUs are the reason.
  std::string obstacle(const Problem& problem) const {
    const auto found = search_schedules(problem, machine, {.strategies = {Strategy::sequential}});
    const auto of_gpus = gpu_obstacle(make_plans(problem, found.front().schedule), machine);
    return "has no schedule that is allowed here" + (of_gpus ? "; " + *of_gpus : std::string());
  }

  Schedule predicted(const Task& task) const {
    const auto find = [&] {
      const auto found = search_schedules(task.problem, machine, space_of(task));
      return as_candidates(first_allowed(task.problem, found));
    };
    return found_by_first(task, find).front().schedule;
  }

  bool has_memory_everywhere(const Task& task, const std::vector<Candidate>& trials) const {
    std::size_t free = 0;
    std::size_t total = 0;
    FLASHOVERLAP_CUDA(cudaMemGetInfo(&free, &total));
    const double needed = static_cast<double>(measured_bytes(task.problem, task.reader, gpu.rank(), trials));
    return gpu.maximum(needed - static_cast<double>(free)) <= 0;
  }

  /// Whether the caller refuses schedules that others may take: then the winner is not the answer for them.
  bool restricts(const Problem& problem, const std::vector<Candidate>& found) const {
    return options.allows && !std::ranges::all_of(found, [&](const Candidate& each) {
             return options.allows(problem, each.schedule);
           });
  }

  struct Trials {
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::vector<Candidate> schedules{};
    bool are_for_all = false;  ///< on rank 0
  };

  Trials find_trials(const Task& task) const {
    Trials trials;
    trials.schedules = found_by_first(task, [&] {
      std::vector<Candidate> found = search_schedules(task.problem, machine, space_of(task));
      trials.are_for_all = !restricts(task.problem, found);
      found = allowed(task.problem, std::move(found));
      return found.empty() ? found : shortlist(found, trials_for(found.front().predicted_us));
    });
    return trials;
  }

  TunedPlan tune(const Task& task, const Trials& trials) {
    auto [tuned, measured] = measure_trials(gpu, task.problem, task.reader, trials.schedules);
    tried = std::move(measured);
    gpu.barrier();  // to give memory back may have to wait for a rank that goes on
    if (trials.are_for_all && cache) {
      try {
        cache->store(tuned);
      } catch (const Error& error) {
        say(fmt::format("the tuned plan is not kept: {}", error.what()));
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - trials.begin;
    const std::string in_turn =
        tuned.sequential_us > 0 ? fmt::format("; one after the other {:.1f} us", tuned.sequential_us) : "";
    say(fmt::format("tuned {} in {:.1f} s: {}, {:.1f} us{}", described(task), taken.count(),
                    name(tuned.schedule.strategy), tuned.tuned_us, in_turn));
    return tuned;
  }

  void measure_machine(const std::function<void(std::string_view step)>& progress) {
    machine = flashoverlap::measure_machine(gpu, [&](std::string_view step) {
      if (progress && gpu.is_first()) progress(step);
    });
    share_machine();
    if (!gpu.is_first() || !cache) return;
    try {
      cache->store_machine(machine);
    } catch (const Error& error) {
      say(fmt::format("what was measured is not kept: {}", error.what()));
    }
  }

  GpuRank gpu;
  TunerOptions options;
  TuningSite site;
  Machine machine;
  std::vector<Trial> tried;
  std::optional<PlanCache> cache;
  std::optional<PlanCache> cache_alone;  ///< without concurrent collectives, if that is another one
};

Tuner::Tuner(const Communicator& communicator, TunerOptions options)
    : state_(std::make_unique<State>(communicator, std::move(options))) {}
Tuner::~Tuner() = default;
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner& Tuner::operator=(Tuner&&) noexcept = default;

const std::vector<Trial>& Tuner::trials() const noexcept { return state_->tried; }

const Machine& Tuner::machine() const noexcept { return state_->machine; }

const Machine& Tuner::measure_machine(const std::function<void(std::string_view step)>& progress) {
  state_->measure_machine(progress);
  return state_->machine;
}

Schedule Tuner::schedule(const Problem& problem, Reader reader) {
  state_->check(problem);
  const Task task{problem, reader};
  if (const auto known = state_->known_to_first(task)) return *known;
  if (!state_->options.measure) return state_->predicted(task);
  const State::Trials trials = state_->find_trials(task);
  if (state_->has_memory_everywhere(task, trials.schedules)) return state_->tune(task, trials).schedule;
  state_->say(
      fmt::format("{} is not tuned, as GPU memory is short: the prediction is taken", described(task)));
  return trials.schedules.front().schedule;
}

TunedPlan Tuner::tune(const Problem& problem, Reader reader) {
  state_->check(problem);
  const Task task{problem, reader};
  const State::Trials trials = state_->find_trials(task);
  if (!state_->has_memory_everywhere(task, trials.schedules))
    throw Error(fmt::format("{} cannot be tuned: GPU memory is short", described(task)));
  return state_->tune(task, trials);
}

}  // namespace flashoverlap
