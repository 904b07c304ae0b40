/// The schedule that is fastest here, found once for each problem: predicted, measured, and kept.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/reader.hpp"
#include "flashoverlap/schedule.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap {

struct TunerOptions {
  /// Measure what is not in the cache. Otherwise the fastest prediction is taken, and not kept. The variable
  /// FLASHOVERLAP_TUNING=off has the same effect as false. As rank 0 says.
  bool measure = true;
  bool use_cache = true;
  std::string cache_directory{};  ///< empty: the usual one, as `cache_directory()` says
  /// Gets one line for each problem that is measured, and one for each file that is set aside; on rank 0
  /// only. Must not throw. Empty: lines go to standard error.
  std::function<void(const std::string& line)> log{};
  /// Where given, other schedules are not chosen. The same on all ranks. What is measured is kept for others
  /// only if nothing was left out.
  std::function<bool(const Problem& problem, const Schedule& schedule)> allows{};
};

/// Chooses schedules for the ranks of a communicator. Rank 0 reads and writes the cache and decides, so that
/// all ranks agree even if their files differ. Every call is collective. Used by one thread at a time.
class Tuner {
 public:
  /// Takes the machine that was measured where rank 0 runs (`measure_machine`), or a preset. Throws
  /// `InvalidArgument` where there are no kernels for the GPU.
  explicit Tuner(const Communicator& communicator, TunerOptions options = {});
  /// Waits on the host for ranks of this process that share the GPU's memory, up to four times `wait_limit`
  /// if one of them has failed. So does what is assigned to.
  ~Tuner();
  Tuner(Tuner&&) noexcept;
  Tuner& operator=(Tuner&&) noexcept;

  /// What the search predicts from.
  const Machine& machine() const noexcept;

  /// Measures the GPUs and what connects them, as `flashoverlap tune machine` does, in less than a minute and
  /// while nothing else runs on them. Predicts from that since, and keeps it in the cache for all that come
  /// later. `progress` is told on rank 0 what is measured next. Throws `InvalidArgument` for a single rank.
  const Machine& measure_machine(const std::function<void(std::string_view step)>& progress = {});

  /// From the cache, for this problem and reader; else, for one that differs only in m and has the same
  /// `row_bucket`, the likeliest of the same strategy and shots, with the same kernel if there is one; else
  /// `tune`, or the prediction where GPU memory is short. Throws `InvalidArgument` for a problem that breaks
  /// a rule or is for another number of ranks. What fails on rank 0 alone, such as the search, throws on
  /// every rank.
  Schedule schedule(const Problem& problem, Reader reader = Reader::caller);

  /// Measures the likeliest schedules, some of each strategy, and `sequential`, and keeps the fastest; one
  /// that is a single kernel where it takes at most 1 µs longer; else `sequential`, unless another one is
  /// faster by more than 1.5 %, and not slower where it follows itself. Of those of more than 5 ms it is one
  /// that overlaps where that takes at most 2 % longer than `sequential`. For Reader::norm with an RMSNorm of
  /// result and residual, and in all layouts that it reads. Takes one to four seconds, and GPU memory for
  /// several sets of operands, an operator and fourteen results (eight of long runs): throws `Error` where it
  /// is short. Otherwise throws as `Operator`.
  TunedPlan tune(const Problem& problem, Reader reader = Reader::caller);

  /// What the last call that measured has tried, the likeliest first, between other kernels. Empty before.
  const std::vector<Trial>& trials() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Problems whose m rounds up to the same of 1, 2, 3, 4, 6, 8, 12, 16, ... rows are tuned together. Throws
/// `InvalidArgument` unless m is at least 1 and at most 2^62.
std::int64_t row_bucket(std::int64_t m);

}  // namespace flashoverlap
