#include "search/expected_time.hpp"

#include <algorithm>

#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "model/operand_reads.hpp"
#include "model/stream_costs.hpp"
#include "plan/grouping.hpp"
#include "search/kernel_choice.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

std::int64_t wave_count_of(const Shape& gemm, const Schedule& schedule) {
  return wave_count(schedule, entry_count(schedule, gemm.rows, gemm.cols));
}

/// Blocks of C that a group is made of, side by side as the planners cut it. A slice for each rank and round
/// has several groups; `signal` takes its groups from the whole, in layout tiled from its order.
Shape group_blocks(const Problem& problem, const Shape& gemm, const Schedule& schedule) {
  const bool slices = schedule.strategy != Strategy::signal && !gathers_along_k(problem);
  const std::int64_t parts = slices ? std::int64_t{problem.ranks} * schedule.rounds : 1;
  const bool by_cols = gathers(problem, Operand::b);
  const std::int64_t rows = divide_up(gemm.rows, entry_rows(schedule) * (by_cols ? 1 : parts));
  const std::int64_t cols = divide_up(gemm.cols, schedule.tile_cols * (by_cols ? parts : 1));
  if (schedule.layout == Layout::tiled) return {rows, cols};
  const std::int64_t entries = std::int64_t{schedule.waves_per_group} * workers(schedule);
  const auto across = [&](std::int64_t extent, std::int64_t other) {
    return std::clamp<std::int64_t>((entries + other / 2) / other, 1, extent);
  };
  return by_cols ? Shape{rows, across(cols, rows)} : Shape{across(rows, cols), cols};
}

double grouped_gemm_us(const Machine& machine, const Problem& problem, const Shape& gemm,
                       const Schedule& schedule) {
  if (predicts_cublas(machine, problem, schedule))
    return cublas_microseconds(machine, gemm, problem.k, problem.b_layout);
  const double gemm_us = expected_gemm_us(machine, problem, schedule);
  const TileGroups groups{static_cast<double>(wave_count_of(gemm, schedule)),
                          group_blocks(problem, gemm, schedule)};
  return gemm_us + narrow_groups_microseconds(machine, problem, schedule, {&groups, 1}, gemm_us);
}

/// Messages that a rank sends, and the share of all that the other one of GEMM and communication waits for:
/// the first message's tiles, or the last one's, whichever cannot be hidden.
struct Messages {
  double count = 1;
  double exposed_share = 1;
};

Messages expected_messages(const Problem& problem, const Shape& gemm, const Schedule& schedule) {
  if (schedule.shots > 0) return {1.0 * schedule.shots, 1.0 / schedule.shots};
  if (schedule.strategy == Strategy::sequential) return {};
  const bool is_signal = schedule.strategy == Strategy::signal;
  const double slices = is_signal ? 1 : problem.ranks * schedule.rounds;
  const double waves = std::max(1.0, static_cast<double>(wave_count_of(gemm, schedule)) / slices);
  const double groups = !schedule.groups.empty() ? static_cast<double>(schedule.groups.size())
                                                 : std::max(1.0, waves / schedule.waves_per_group);
  const double exposed_groups = schedule.groups.empty() ? groups : waves / schedule.groups.back();
  return {groups * (is_signal ? 1 : (problem.ranks - 1) * schedule.rounds), 1 / (slices * exposed_groups)};
}

/// Of one of `count` in the mean, with its launch, which what a GEMM stores itself does without.
double expected_message_us(const Machine& machine, const Problem& problem, const Schedule& schedule,
                           double count, double gemm_us) {
  const double sent_bytes = most_sent_bytes(problem) / count;
  const double launch_us = machine.launch_microseconds;
  if (schedule.shots > 0) return launch_us + machine.store_microseconds(problem.ranks, sent_bytes);
  switch (schedule.strategy) {
    case Strategy::copy:
      return launch_us + machine.copy_microseconds(problem.ranks, sent_bytes) +
             (communicates_first(problem.operation) ? 0 : copy_pause_us);
    case Strategy::store:
      if (schedule.comm_multiprocessors == 0 || !communicates_first(problem.operation))
        return stored_microseconds(machine, problem.ranks, sent_bytes);
      return launch_us + std::max(machine.store_microseconds(problem.ranks, sent_bytes),
                                  least_store_microseconds(schedule, machine, sent_bytes));
    case Strategy::sequential:
    case Strategy::signal:
    case Strategy::p2p: break;
  }
  const MessageKind kind =
      schedule.strategy == Strategy::p2p ? MessageKind::exchange : collective_of(problem.operation);
  const double bytes = matrix_bytes(kind, problem.ranks, sent_bytes);
  if (schedule.strategy == Strategy::sequential) {
    return launch_us + between_gemms_microseconds(machine, kind,
                                                  machine.collective_microseconds(kind, problem.ranks, bytes),
                                                  gemm_us);
  }
  const double capped_us = capped_collective_microseconds(problem.ranks, schedule, machine, kind, bytes,
                                                          /*during_gemm=*/true);
  const double last_us = last_has_no_cap(problem, kind)
                             ? machine.collective_microseconds(kind, problem.ranks, bytes)
                             : capped_us;
  return launch_us + group_pause_microseconds(machine, schedule) +
         ((count - 1) * capped_us + last_us) / count;
}

/// How many times as long tiles take while their rank sends.
double expected_slowdown(const Machine& machine, const Problem& problem, const Schedule& schedule) {
  switch (schedule.strategy) {
    case Strategy::copy: return machine.copy_slowdown;
    case Strategy::store: return machine.store_slowdown;
    case Strategy::p2p: return collective_slowdown(machine, schedule, MessageKind::exchange);
    case Strategy::signal: return collective_slowdown(machine, schedule, collective_of(problem.operation));
    case Strategy::sequential: break;
  }
  return 1;
}

}  // namespace

double expected_schedule_us(const Machine& machine, const Problem& problem, const Shape& gemm,
                            const Schedule& schedule) {
  double gemm_us = grouped_gemm_us(machine, problem, gemm, schedule);
  if (problem.ranks == 1) return gemm_us;
  const Messages messages = expected_messages(problem, gemm, schedule);
  const double communication_us =
      messages.count * expected_message_us(machine, problem, schedule, messages.count, gemm_us);
  if (schedule.strategy == Strategy::sequential) return gemm_us + communication_us;
  const double slowdown = expected_slowdown(machine, problem, schedule);
  gemm_us += std::min(communication_us, gemm_us * slowdown) * (1 - 1 / slowdown);
  const double meeting_us = streams_meet_microseconds(machine, problem, schedule) +
                            rounds_meet_microseconds(machine, problem, schedule);
  return std::max(gemm_us, communication_us) + std::min(gemm_us, communication_us) * messages.exposed_share +
         meeting_us;
}

}  // namespace flashoverlap
