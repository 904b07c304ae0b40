#include "tune/schedule_trials.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/workspace.hpp"
#include "flashoverlap/workspace_bytes.hpp"
#include "measure/contest.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/strategies.hpp"
#include "tune/winner.hpp"

namespace flashoverlap {
namespace {

/// How many schedules are measured, and how many of them once more, next to `sequential`.
struct Effort {
  std::size_t trials;
  std::size_t finalists;
};

Effort effort_for(double predicted_us) {
  if (predicted_us > least_us_in_rows) return {8, 2};
  if (predicted_us > 2'500) return {10, 2};
  if (predicted_us > 1'000) return {16, 3};
  return {24, 4};
}

bool is_one_kernel(const Problem& problem, const Schedule& schedule) {
  return schedule.strategy == Strategy::store && gemms_make_messages(make_plans(problem, schedule));
}

/// Of a workspace for all of them.
WorkspaceBytes workspace_bytes(const Problem& problem, const std::vector<Candidate>& trials) {
  WorkspaceBytes bytes;
  for (const Candidate& trial : trials) bytes.add(make_plans(problem, trial.schedule));
  return bytes;
}

/// Kinds of which the fastest is always a finalist: one kernel, and sums of this library's after cuBLASLt's
/// GEMM, which may be the fastest where all others turn out to be slower than libraries when run follows run.
std::array<Contest::Kind, 2> kinds_of_finalists(const Problem& problem) {
  return {[&problem](const Schedule& schedule) { return is_one_kernel(problem, schedule); }, sums_after_gemm};
}

}  // namespace

std::size_t trials_for(double predicted_us) { return effort_for(predicted_us).trials; }

// Operands in rotation, the workspace, and of the schedules that are measured together the result in the
// caller's memory and what a norm reads and writes.
std::int64_t measured_bytes(const Problem& problem, Reader reader, int rank,
                            const std::vector<Candidate>& trials) {
  constexpr std::int64_t others = 300'000'000;
  const Effort effort = effort_for(trials.front().predicted_us);
  const auto together =
      static_cast<std::int64_t>(Contest::at_a_time(effort.finalists, kinds_of_finalists(problem).size()));
  const Shape out = out_shape(problem, rank);
  const std::int64_t matrices = reader == Reader::norm ? 4 : 1;  // result, two residuals, normalized rows
  const std::int64_t of_trial = matrices * out.rows * out.cols * size_of(problem.data_type);
  return others + rotated_bytes(problem) + workspace_bytes(problem, trials).total() + together * of_trial;
}

MeasuredTrials measure_trials(const GpuRank& gpu, const Problem& problem, Reader reader,
                              const std::vector<Candidate>& trials) {
  const OtherKernels before(gpu.stream());
  const Workspace workspace(workspace_bytes(problem, trials), gpu.communicator());
  const Use use{.reader = reader, .own_result = false, .before = &before, .workspace = &workspace};
  const std::vector<GpuOperands> operands = rotated_operands(gpu, problem);
  std::optional<Candidate> sequential;
  std::vector<Schedule> overlapped;
  for (const Candidate& candidate : trials) {
    if (!is_by_libraries(candidate.schedule)) {
      overlapped.push_back(candidate.schedule);
    } else if (!sequential) {
      sequential = candidate;
    }
  }
  const std::array kinds = kinds_of_finalists(problem);
  const double expected_us = trials.front().predicted_us;
  Contest contest(gpu, problem, operands, use);
  std::vector<Schedule> finalists =
      contest.fastest(std::move(overlapped), effort_for(expected_us).finalists, kinds);
  if (sequential) finalists.push_back(sequential->schedule);
  constexpr double affordable_us = 100'000;  // of each finalist, in either way
  const int repetitions = static_cast<int>(std::clamp(affordable_us / expected_us, 9.0, 27.0));
  const std::vector<double> times = contest.measure(finalists, repetitions);
  const bool in_rows = std::ranges::min(times) > least_us_in_rows;
  const std::vector<double> repeated = in_rows ? times : contest.measure_repeated(finalists, repetitions);
  contest.give_back();
  std::vector<Trial> tried = trials_of(trials, contest.measured());
  std::vector<Finalist> measured;
  for (std::size_t place = 0; place < finalists.size(); ++place) {
    const Schedule& schedule = finalists[place];
    measured.push_back({.between_others_us = times[place],
                        .repeated_us = repeated[place],
                        .is_one_kernel = is_one_kernel(problem, schedule),
                        .is_by_libraries = is_by_libraries(schedule),
                        .is_sequential = schedule.strategy == Strategy::sequential});
  }
  const std::size_t winner = winner_of(measured, least_us_in_rows);
  const auto chosen = std::ranges::find(trials, finalists[winner], &Candidate::schedule);
  return {.tuned = {.problem = problem,
                    .reader = reader,
                    .schedule = finalists[winner],
                    .tuned_us = times[winner],
                    .sequential_us = sequential ? times.back() : 0,
                    .predicted_us = chosen->predicted_us},
          .tried = std::move(tried)};
}

}  // namespace flashoverlap
