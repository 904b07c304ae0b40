#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "cli/command.hpp"
#include "cli/format.hpp"
#include "cli/gpu/commands.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/current_gpu.hpp"
#include "measure/host_comparison.hpp"
#include "measure/plan_check.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "plan/strategies.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap::cli {
namespace {

constexpr int most_comm_multiprocessors = 16;
constexpr int wanted_waves = 6;  // so that small shapes have several groups too
Schedule schedule_for(const GpuCase& wanted, const GpuRank& gpu) {
  const int useful = std::min(most_comm_multiprocessors, gpu.multiprocessors() / 2);
  const int reserved = wanted.strategy == Strategy::sequential ? 0 : useful;
  const int left = gpu.multiprocessors() - reserved;
  const Machine machine = current_machine(gpu.has_peer_access());
  Schedule schedule =
      kernel_schedule(machine, wanted.problem, wanted.strategy, wanted.layout, left, reserved);
  if (wanted.strategy == Strategy::store && machine_kernels(machine).stores_aside)
    schedule.comm_multiprocessors = 0;
  schedule.rounds = wanted.rounds;
  schedule.shots = wanted.shots;
  if (sums_after_gemm(schedule)) schedule.cluster_rows = 1;
  schedule.share_k =
      wanted.strategy == Strategy::store && wanted.shots == 1 && machine_kernels(machine).shares_k;
  // Small shapes in parts of k are one wave, whose slices come together; large ones are not.
  const bool in_parts = communicates_first(wanted.problem.operation) && wanted.rounds > 1;
  if (reserved == 0 || in_parts) return schedule;
  const std::int64_t entries = entry_count(schedule, wanted.problem.m, wanted.problem.n);
  const auto few = static_cast<int>(divide_up(entries, wanted_waves)) * schedule.cluster_rows;
  schedule.multiprocessors = std::clamp(few, schedule.cluster_rows, left);
  if (schedule.first_multiprocessors > 0)
    schedule.first_multiprocessors = schedule.multiprocessors + reserved;
  return schedule;
}

std::string described(const GpuCase& wanted) {
  const Problem& problem = wanted.problem;
  const auto layout = [](OperandLayout of) { return of == OperandLayout::k_contiguous ? "k" : "row"; };
  std::string operands = fmt::format("{} {}", layout(problem.a_layout), layout(problem.b_layout));
  if (gathers(problem, Operand::b)) operands += " of b";
  if (problem.exchange == Exchange::heads) operands += " heads";
  if (problem.experts > 1) operands += " experts";
  if (wanted.pitched) operands += " pitched";
  return fmt::format("{:<20} {:<20} {:<14} {:<7} {:<6} {:>5} {:>5} {:>5} {:>6}", name(problem.operation),
                     operands, strategy_text({.strategy = wanted.strategy, .shots = wanted.shots}),
                     name(wanted.layout), wanted.own_result ? "own" : "", problem.m, problem.n, problem.k,
                     wanted.rounds);
}

void print_headers(const GpuCheck& check, std::string_view fabric) {
  const DataType data_type = check.cases.front().problem.data_type;
  fmt::print("{} ranks, {}, {}, limit {:.0e}\n", check.gpus, fabric, name(data_type), error_limit(data_type));
  fmt::print("{:<20} {:<20} {:<14} {:<7} {:<6} {:>5} {:>5} {:>5} {:>6}  {:>6} {:>6}  {:>8} {:>8} {:>7}\n",
             "operation", "operands", "strategy", "layout", "result", "m", "n", "k", "rounds", "groups",
             "runs", "error", "fp64", "element");
}

void print(const GpuCase& wanted, const std::vector<Plan>& plans, int runs, const PlanVerdict& verdict) {
  std::string outcome = verdict.holds() ? "ok" : "FAILED";
  if (verdict.different_replays > 0) outcome += fmt::format(", {} replays differ", verdict.different_replays);
  if (verdict.padding_written) outcome += ", padding written";
  fmt::print("{}  {:>6} {:>6}  {:>8.1e} {:>8.1e} {:>7.3f}  {}\n", described(wanted),
             group_count(plans.front()), runs, verdict.difference.relative, verdict.reference_error,
             verdict.difference.largest, outcome);
  std::fflush(stdout);
}

/// Whether all cases are right; the same on every rank.
bool check_rank(const GpuRank& gpu, const GpuCheck& check) {
  if (gpu.is_first()) print_headers(check, gpu.fabric());
  int failures = 0;
  int skipped = 0;
  const auto skip = [&](const GpuCase& each, const InvalidArgument& refusal) {
    ++skipped;
    if (gpu.is_first()) fmt::print("{}  skipped: {}\n", described(each), refusal.what());
  };
  for (const GpuCase& each : check.cases) {
    std::vector<Plan> plans = each.plans;
    try {
      if (plans.empty()) plans = make_plans(each.problem, schedule_for(each, gpu));
    } catch (const InvalidArgument& refusal) {
      skip(each, refusal);
      continue;
    }
    PlanVerdict verdict;
    try {
      verdict = check_plans(
          gpu, plans, {check.runs, check.delays, check.seed, check.graph, each.own_result, each.pitched});
    } catch (const InvalidArgument& refusal) {
      // Sums in place of NCCL's need peers' memory, which `sequential` itself does without.
      if (!check.skips_refused && !sums_after_gemm(plans.front().schedule)) throw;
      skip(each, refusal);
      gpu.barrier();
      continue;
    }
    if (!verdict.holds()) ++failures;
    if (gpu.is_first()) print(each, plans, check.runs, verdict);
  }
  if (gpu.is_first()) {
    fmt::print("{}: {} cases, {} failed, {} skipped\n", failures == 0 ? "ok" : "FAILED", check.cases.size(),
               failures, skipped);
  }
  return failures == 0;
}

}  // namespace

int check_on_gpus(const GpuCheck& check) {
  std::atomic<bool> right = true;
  run_on_gpus(check.gpus, [&](const GpuRank& gpu) { right = check_rank(gpu, check); },
              {.wait_limit = std::chrono::seconds(check.wait_limit)});
  return right ? exit_success : exit_failure;
}

}  // namespace flashoverlap::cli
