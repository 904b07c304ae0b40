#include "model/stream_costs.hpp"

#include <algorithm>

#include "model/costs.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/result_rows.hpp"

// Unless said otherwise, numbers are fitted to 351 random problems on 2 H200, of which 291 ran by up to ten
// schedules each (docs/log/predictions.md).
namespace flashoverlap {

double between_gemms_microseconds(const Machine& machine, MessageKind kind, double alone_us, double gemm_us) {
  constexpr double most_signals = 4.5;
  constexpr double half_us = 120;  // of a GEMM that costs half of what long ones do
  const double share = gemm_us / (gemm_us + half_us);
  double slowdown = 1;
  if (machine.peer_access) {  // elsewhere the link is what bounds
    switch (kind) {
      case MessageKind::all_gather: slowdown = 1 + 0.3 * share; break;
      case MessageKind::exchange: slowdown = 1.05 + 0.1 * share; break;
      default: slowdown = 1 + 0.07 * share; break;
    }
  }
  return most_signals * share * machine.signal_microseconds + slowdown * alone_us;
}

double group_pause_microseconds(const Machine& machine, const Schedule& schedule) {
  constexpr double signals = 2.3;
  return schedule.strategy == Strategy::signal ? signals * machine.signal_microseconds : 0;
}

double streams_meet_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule) {
  if (communicates_first(problem.operation) || problem.ranks == 1 || schedule.shots > 0) return 0;
  const auto signals = [&] {
    switch (schedule.strategy) {
      case Strategy::copy: return problem.operation == Operation::gemm_all_reduce ? 6.0 : 3.0;
      case Strategy::p2p: return 5.0;
      case Strategy::signal: return 3.0;
      case Strategy::sequential:
      case Strategy::store: break;
    }
    return 0.0;
  };
  return signals() * machine.signal_microseconds;
}

double rounds_meet_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule) {
  const bool sums_go_to_all = schedule.strategy == Strategy::store && schedule.shots == 0 &&
                              problem.operation == Operation::gemm_all_reduce && problem.ranks > 1;
  return sums_go_to_all ? (schedule.rounds - 1) * machine.signal_microseconds : 0;
}

double result_copy_microseconds(const Machine& machine, std::span<const Plan> plans) {
  double most_us = 0;
  for (const Plan& plan : plans) {
    double us = 0;
    for (const Region& region : copied_rows(plan))
      us += machine.launch_microseconds + copied_microseconds(machine, bytes_of(plan, region));
    most_us = std::max(most_us, us);
  }
  return most_us;
}

namespace {

/// Whether the tiles of every rank leave some multiprocessors free, where the blocks of the next run begin.
bool leave_room(const Machine& machine, std::span<const Plan> plans) {
  return std::ranges::all_of(plans, [&](const Plan& plan) {
    return free_multiprocessors(plan.schedule, machine, std::ssize(plan.tiles)) > 0;
  });
}

/// The signals that a gather by `store` has made when the run before ends: more where its blocks find room,
/// which shows if tiles wait for whole rows.
double signals_before_end(const Machine& machine, std::span<const Plan> plans) {
  if (plans.front().schedule.shots > 0) return 0;
  const bool waits_for_parts = plans.front().wait_depth > 0;
  return !waits_for_parts && leave_room(machine, plans) ? 2 : 1;
}

}  // namespace

double begun_before_microseconds(const Machine& machine, std::span<const Plan> plans) {
  const Schedule& schedule = plans.front().schedule;
  if (schedule.strategy != Strategy::store || !gemms_make_messages(plans)) return 0;
  // Fitted to 244 runs on 2 H200, and to 19 of few tiles. What communicates last waits for peers at the end,
  // what gathers in one shot at the start.
  const bool gathers = communicates_first(plans.front().problem.operation);
  if (gathers) return signals_before_end(machine, plans) * machine.signal_microseconds;
  return (schedule.rounds > 1 ? 0.25 : 0.5) * machine.signal_microseconds;
}

}  // namespace flashoverlap
