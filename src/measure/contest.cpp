#include "measure/contest.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "flashoverlap/planner.hpp"
#include "measure/interleave.hpp"

namespace flashoverlap {

Contest::Contest(const GpuRank& gpu, const Problem& problem, const std::vector<GpuOperands>& operands,
                 Use use)
    : gpu_(gpu), problem_(problem), operands_(operands), use_(use) {}

std::vector<double> Contest::measure(std::span<const Schedule> schedules, int repetitions,
                                     std::span<const Schedule> kept) {
  keep_only(schedules, kept);
  const Turns turns = use_.is_in_model() ? Turns::in_rows : Turns::interleaved;
  std::vector<double> medians_us = medians(schedules, &Entry::runs, repetitions, turns);
  if (use_.is_in_model()) {
    const double before_us = medians_us.back();
    medians_us.pop_back();
    for (double& us : medians_us) us -= before_us;
  }
  note(schedules, medians_us);
  return medians_us;
}

void Contest::note(std::span<const Schedule> schedules, const std::vector<double>& times_us) {
  for (std::size_t place = 0; place < schedules.size(); ++place) {
    const auto known = std::ranges::find(measured_, schedules[place], &Measured::schedule);
    if (known != measured_.end()) {
      known->us = times_us[place];
    } else {
      measured_.push_back({schedules[place], times_us[place]});
    }
  }
}

std::vector<double> Contest::measure_repeated(std::span<const Schedule> schedules, int repetitions) {
  keep_only(schedules);
  std::vector<double> medians_us = medians(schedules, &Entry::repeated, repetitions, Turns::interleaved);
  medians_us.pop_back();
  return medians_us;
}

std::vector<double> Contest::medians(std::span<const Schedule> schedules, Runs Entry::*kind, int repetitions,
                                     Turns turns) {
  std::vector<const CapturedRuns*> runs;
  for (const Schedule& schedule : schedules) runs.push_back(runs_of(schedule, kind));
  if (use_.is_in_model()) runs.push_back(runs_before());
  std::vector<double> medians;
  for (const std::vector<double>& each : take_samples(gpu_, runs, repetitions, turns))
    medians.push_back(median(each));
  return medians;
}

void Contest::keep_only(std::span<const Schedule> schedules, std::span<const Schedule> others) {
  const auto is_in = [](std::span<const Schedule> some, const Schedule& schedule) {
    return std::ranges::find(some, schedule) != some.end();
  };
  const auto goes = [&](const Entry& entry) {
    return !is_in(schedules, entry.schedule) && !is_in(others, entry.schedule);
  };
  gpu_.barrier();
  for (Entry& entry : entries_) {
    if (!goes(entry)) continue;
    entry.runs.reset();  // before the operator
    entry.repeated.reset();
  }
  gpu_.barrier();
  std::erase_if(entries_, goes);
  gpu_.barrier();
}

void Contest::give_back() {
  before_.reset();
  keep_only({});
}

Contest::Entry& Contest::entry_of(const Schedule& schedule) {
  const auto known = std::ranges::find(entries_, schedule, &Entry::schedule);
  if (known != entries_.end()) return *known;
  auto bound = std::make_unique<BoundOperator>(gpu_, make_plans(problem_, schedule), use_);
  entries_.push_back({schedule, std::move(bound)});
  return entries_.back();
}

const CapturedRuns* Contest::runs_of(const Schedule& schedule, Runs Entry::*kind) {
  Entry& entry = entry_of(schedule);
  Runs& runs = entry.*kind;
  const bool follow_others = kind == &Entry::runs && use_.is_in_model();
  const auto run = [&](const GpuOperands& set) {
    if (follow_others) use_.before->launch(gpu_.stream());
    entry.bound->run(set);
  };
  if (!runs) runs = capture(gpu_, operands_, run, captured_++).runs;
  return runs.get();
}

const CapturedRuns* Contest::runs_before() {
  if (!before_) {
    const auto run = [&](const GpuOperands&) { use_.before->launch(gpu_.stream()); };
    before_ = capture(gpu_, operands_, run, 0).runs;
  }
  return before_.get();
}

std::vector<Schedule> Contest::fastest(std::vector<Schedule> schedules, std::size_t most,
                                       std::span<const Kind> kinds) {
  if (schedules.size() <= 1) return schedules;
  std::vector<Measured> fastest;
  std::vector<std::optional<Measured>> fastest_of(kinds.size());
  while (!schedules.empty()) {
    // Times of rows can be compared with those of earlier ones.
    const bool in_rows = use_.is_in_model() && !fastest.empty() && fastest.front().us > least_us_in_rows;
    std::vector<Schedule> kept;
    for (const Measured& trial : fastest) kept.push_back(trial.schedule);
    for (const std::optional<Measured>& trial : fastest_of) {
      if (trial) kept.push_back(trial->schedule);
    }
    std::vector<Schedule> measured;
    if (!in_rows) {
      for (Measured& trial : std::exchange(fastest, {})) measured.push_back(std::move(trial.schedule));
    }
    while (!schedules.empty() && measured.size() < together(most)) {
      measured.push_back(std::move(schedules.back()));
      schedules.pop_back();
    }
    const std::vector<double> times = measure(measured, trial_repetitions, kept);
    for (std::size_t place = 0; place < measured.size(); ++place) {
      fastest.push_back({measured[place], times[place]});
      const Measured& trial = fastest.back();
      for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        std::optional<Measured>& best = fastest_of[kind];
        if (kinds[kind](trial.schedule) && (!best || trial.us < best->us)) best = trial;
      }
    }
    std::ranges::stable_sort(fastest, {}, &Measured::us);
    fastest.resize(std::min(most, fastest.size()));
    const double limit_us = nearly_fastest * fastest.front().us;
    std::erase_if(fastest, [&](const Measured& trial) { return trial.us > limit_us; });
  }
  std::vector<Schedule> found;
  for (Measured& trial : fastest) found.push_back(std::move(trial.schedule));
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (fastest_of[kind] && std::ranges::none_of(found, kinds[kind]))
      found.push_back(fastest_of[kind]->schedule);
  }
  return found;
}

std::vector<Trial> trials_of(const std::vector<Candidate>& candidates,
                             const std::vector<Contest::Measured>& measured) {
  std::vector<Trial> trials;
  for (const auto& [schedule, predicted_us] : candidates) {
    const auto found = std::ranges::find(measured, schedule, &Contest::Measured::schedule);
    if (found != measured.end()) trials.push_back({schedule, predicted_us, found->us});
  }
  return trials;
}

}  // namespace flashoverlap
