/// Schedules of one problem, measured against each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "flashoverlap/search.hpp"
#include "measure/trials.hpp"

namespace flashoverlap {

/// A few runs do not tell schedules apart whose times differ by less than this.
inline constexpr double nearly_fastest = 1.05;

/// Collective, as all that it does.
class Contest {
 public:
  struct Measured {
    Schedule schedule;
    double us = 0;
  };

  /// What it refers to must outlive it.
  Contest(const GpuRank& gpu, const Problem& problem, const std::vector<GpuOperands>& operands, Use use);

  /// Median times of schedules that are measured together, in a model `in_rows`, without the kernels before
  /// them. Operators stay for the next call if it measures their schedules, too, or they are in `kept`.
  std::vector<double> measure(std::span<const Schedule> schedules, int repetitions,
                              std::span<const Schedule> kept = {});

  /// The same in a model where run follows run. The other kernels have turns of their own, so that clocks are
  /// those of a model.
  std::vector<double> measure_repeated(std::span<const Schedule> schedules, int repetitions);

  /// What holds for some schedules.
  using Kind = std::function<bool(const Schedule&)>;

  /// How many operators there are at a time while `fastest` finds `most`: those that it measures together,
  /// and those that it found before.
  static constexpr std::size_t at_a_time(std::size_t most, std::size_t kinds) {
    return together(most) + most + kinds;
  }

  /// The fastest in a few runs, and those that are `nearly_fastest`; at most `most`. Measures some at a time,
  /// and the fastest of them again with the next, unless they are measured in rows. After them comes the
  /// fastest of each kind of which none is among them. A single schedule is returned as it is.
  std::vector<Schedule> fastest(std::vector<Schedule> schedules, std::size_t most,
                                std::span<const Kind> kinds = {});

  /// Of each schedule that was measured, as used, in the order of their first measurements: the last time.
  const std::vector<Measured>& measured() const { return measured_; }

  /// All operators, before the destructor, which does not meet the other ranks.
  void give_back();

 private:
  static constexpr std::size_t together(std::size_t most) { return std::max<std::size_t>(4, 2 * most); }

  using Runs = std::unique_ptr<CapturedRuns>;

  struct Entry {
    Schedule schedule;
    std::unique_ptr<BoundOperator> bound;
    Runs runs{};      ///< as used
    Runs repeated{};  ///< without what comes before them
  };

  /// In a model the kernels that come before runs have turns of their own, and their median is the last.
  std::vector<double> medians(std::span<const Schedule> schedules, Runs Entry::*kind, int repetitions,
                              Turns turns);

  void note(std::span<const Schedule> schedules, const std::vector<double>& times_us);
  void keep_only(std::span<const Schedule> schedules, std::span<const Schedule> others = {});
  Entry& entry_of(const Schedule& schedule);
  const CapturedRuns* runs_of(const Schedule& schedule, Runs Entry::*kind);
  const CapturedRuns* runs_before();

  const GpuRank& gpu_;
  const Problem& problem_;
  const std::vector<GpuOperands>& operands_;
  Use use_;
  std::vector<Entry> entries_;
  std::vector<Measured> measured_;
  Runs before_;  ///< of the kernels that come before each run
  std::size_t captured_ = 0;
};

/// Those candidates that were measured.
std::vector<Trial> trials_of(const std::vector<Candidate>& candidates,
                             const std::vector<Contest::Measured>& measured);

}  // namespace flashoverlap
