#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "cli/plan_summary.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/tuner.hpp"
#include "measure/gpu_record.hpp"
#include "measure/host_comparison.hpp"
#include "measure/overlap_benchmark.hpp"
#include "model/stream_costs.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int> tried_comm_multiprocessors(const OverlapBench& bench, bool has_peer_access) {
  if (!bench.plans.empty() || !bench.comm_multiprocessors.empty()) return bench.comm_multiprocessors;
  // What is slower than NVLink needs fewer multiprocessors to be kept busy.
  return has_peer_access ? std::vector{4, 6, 8, 12, 16, 24} : std::vector{2, 4, 8, 16};
}

std::vector<Method> methods_of(const OverlapBench& bench) {
  std::vector<Method> methods;
  for (const Strategy strategy : bench.strategies) {
    for (const Layout layout : bench.layouts) {
      if (supports(bench.problems.front(), strategy, layout)) methods.push_back({strategy, layout});
    }
  }
  return methods;
}

/// What NCCL is told.
Json nccl_environment() {
  Json variables = Json::object();
  for (char** place = environ; *place != nullptr; ++place) {
    const std::string_view variable(*place);
    const std::size_t equals = variable.find('=');
    if (!variable.starts_with("NCCL_") || equals == std::string_view::npos) continue;
    if (variable.starts_with("NCCL_VERSION=")) continue;  // set by container images, not read by NCCL
    variables[std::string(variable.substr(0, equals))] = variable.substr(equals + 1);
  }
  return variables;
}

Json machine_record(const OverlapBench& bench, const GpuRank& gpu) {
  Json machine = gpu_machine();
  int nccl = 0;
  ncclGetVersion(&nccl);
  machine["nccl"] = nccl;
  machine["nccl_environment"] = nccl_environment();
  machine["gpus"] = bench.gpus;
  machine["fabric"] = gpu.fabric();
  machine["command"] = command_line();
  if (bench.plans.empty())
    machine["comm_multiprocessors"] = tried_comm_multiprocessors(bench, gpu.has_peer_access());
  return machine;
}

void print_headers() {
  fmt::print(
      "{:<19} {:>6} {:>6} {:>6} | {:>8} {:>8} {:>8} | {:<10} {:<7} {:>6} {:>8} | {:>8} {:>8} {:>8} | "
      "{:>7} {:>11} {:>9} {:>7} {:>8} {:>7}\n",
      "op", "m", "n", "k", "gemm us", "comm us", "seq us", "strategy", "layout", "groups", "comm_sms",
      "overlap", "p10", "p90", "speedup", "bound_share", "kernel us", "exposed", "error", "host us");
}

void print_row(const ShapeTimes& shape, const MethodTimes& method, double speedup, double bound_share) {
  const Problem& problem = shape.problem;
  const Schedule& schedule = method.schedule();
  fmt::print(
      "{:<19} {:>6} {:>6} {:>6} | {:>8.1f} {:>8.1f} {:>8.1f} | {:<10} {:<7} {:>6} {:>8} | {:>8.1f} "
      "{:>8.1f} {:>8.1f} | {:>7.3f} {:>11.3f} {:>9.1f} {:>7.3f} {:>8.1e} {:>7.1f}\n",
      name(problem.operation), problem.m, problem.n, problem.k, shape.gemm_us, shape.comm_us,
      shape.sequential_us, name(schedule.strategy), name(schedule.layout), group_count(method.plans.front()),
      schedule.comm_multiprocessors, method.median_us, method.p10_us, method.p90_us, speedup, bound_share,
      method.kernel_us, method.exposed(), method.error, method.host_us);
  if (problem.experts > 1) {
    fmt::print(
        "{:>23} experts on each rank: their GEMMs together {:.1f} us, {:.3f} of the rate of one GEMM\n",
        problem.experts, shape.grouped_us, shape.one_gemm_us / shape.grouped_us);
  }
  std::fflush(stdout);
}

/// Its strategy, and the fields that differ from the defaults, in one line.
std::string short_json(const Schedule& schedule) {
  Json json = schedule_json(schedule);
  const Json usual = schedule_json({});
  for (const auto& [key, value] : usual.items()) {
    if (key != "strategy" && json[key] == value) json.erase(key);
  }
  return json.dump();
}

double to_hundredths(double us) { return std::round(100 * us) / 100; }

Json trials_json(const std::vector<Trial>& trials) {
  Json schedules = Json::array();
  Json predicted_us = Json::array();
  Json measured_us = Json::array();
  for (const Trial& trial : trials) {
    schedules.push_back(short_json(trial.schedule));
    predicted_us.push_back(to_hundredths(trial.predicted_us));
    measured_us.push_back(to_hundredths(trial.measured_us));
  }
  return {{"schedules", schedules}, {"predicted_us", predicted_us}, {"measured_us", measured_us}};
}

/// Rows of the table, and their means.
class Report {
 public:
  Report(std::string_view used_fabric, const OverlapBenchmark& benchmark)
      : fabric_(used_fabric),
        benchmark_(benchmark),
        machine_(benchmark.own_result ? benchmark.machine : with_results_of_callers(benchmark.machine)) {}

  /// `trials`: of the tuner, whose choice is the last method; empty if it was not asked.
  void add(const ShapeTimes& shape, const std::vector<Trial>& trials, bool print) {
    const bool has_tuned = !trials.empty();
    const auto end = shape.methods.end() - (has_tuned ? 1 : 0);
    const double least_us =
        end == shape.methods.begin()
            ? 0
            : std::ranges::min_element(shape.methods.begin(), end, {}, &MethodTimes::median_us)->median_us;
    double baseline_us = shape.sequential_us;  // or the sums of ours after cuBLASLt's GEMM
    for (const MethodTimes& method : shape.methods) {
      const Schedule& schedule = method.schedule();
      if (schedule.strategy == Strategy::sequential && schedule.layout != Layout::partial)
        baseline_us = std::min(baseline_us, method.median_us);
    }
    for (const MethodTimes& method : shape.methods) {
      const bool is_tuned = has_tuned && &method == &shape.methods.back();
      const double speedup = shape.sequential_us / method.median_us;
      const double bound_share = shape.bound_us() / method.median_us;
      const Problem& problem = shape.problem;
      const Schedule& schedule = method.schedule();
      if (method.error >= error_limit(problem.data_type)) right_ = false;
      if (print) print_row(shape, method, speedup, bound_share);
      if (is_tuned && print) {
        fmt::print("{:>23} tuned: {:.3f} of the best of all, {:.3f} of one after the other\n", "",
                   least_us / method.median_us, shape.sequential_us / method.median_us);
      }
      rows_.push_back({{"op", name(problem.operation)},
                       {"m", problem.m},
                       {"n", problem.n},
                       {"k", problem.k},
                       {"a_layout", name(problem.a_layout)},
                       {"b_layout", name(problem.b_layout)},
                       {"ranks", problem.ranks},
                       {"dtype", name(problem.data_type)},
                       {"fabric", fabric_},
                       {"strategy", name(schedule.strategy)},
                       {"layout", name(schedule.layout)},
                       {"tile_cols", schedule.tile_cols},
                       {"groups", schedule.groups},
                       {"waves_per_group", schedule.waves_per_group},
                       {"rounds", schedule.rounds},
                       {"shots", schedule.shots},
                       {"comm_sms", schedule.comm_multiprocessors},
                       {"rms_norm", benchmark_.reader == Reader::norm},
                       {"own_result", benchmark_.own_result},
                       {"gemm_us", shape.gemm_us},
                       {"comm_us", shape.comm_us},
                       {"sequential_us", shape.sequential_us},
                       {"baseline_us", baseline_us},
                       {"experts", problem.experts},
                       {"grouped_us", shape.grouped_us},
                       {"one_gemm_us", shape.one_gemm_us},
                       {"overlap_us", method.median_us},
                       {"predicted_us", predicted_us(method.plans)},
                       {"p10_us", method.p10_us},
                       {"p90_us", method.p90_us},
                       {"speedup", speedup},
                       {"bound_share", bound_share},
                       {"kernel_us", method.kernel_us},
                       {"exposed", method.exposed()},
                       {"host_us", method.host_us},
                       {"error", method.error}});
      if (has_tuned) {
        rows_.back()["tuned"] = is_tuned;
        rows_.back()["tuned_us"] = shape.methods.back().median_us;
        rows_.back()["exhaustive_us"] = std::min(least_us, shape.methods.back().median_us);
        rows_.back()["trials"] = trials_json(is_tuned ? trials : method.trials);
      }
      Means& means =
          means_[is_tuned ? "tuned" : fmt::format("{} {}", name(schedule.strategy), name(schedule.layout))];
      means.log_speedup += std::log(speedup);
      means.log_bound_share += std::log(bound_share);
      ++means.count;
    }
  }

  void print_means() const {
    for (const auto& [method, means] : means_) {
      fmt::print("{}: geometric means over {} shapes: speedup {:.3f}, bound_share {:.3f}\n", method,
                 means.count, std::exp(means.log_speedup / means.count),
                 std::exp(means.log_bound_share / means.count));
    }
  }

  const Json& rows() const { return rows_; }
  bool is_right() const { return right_; }

 private:
  struct Means {
    double log_speedup = 0;
    double log_bound_share = 0;
    int count = 0;
  };

  double predicted_us(const std::vector<Plan>& plans) const {
    const bool may_be_copied = !benchmark_.own_result && benchmark_.reader == Reader::caller;
    const double copy_us = may_be_copied ? result_copy_microseconds(machine_, plans) : 0;
    const double begun_us = copy_us > 0 ? 0 : begun_before_microseconds(machine_, plans);
    return simulated_latency_us(plans, machine_) - begun_us + copy_us;
  }

  std::string_view fabric_;
  const OverlapBenchmark& benchmark_;
  Machine machine_;  ///< that predictions are of
  Json rows_ = Json::array();
  bool right_ = true;
  std::map<std::string, Means> means_;
};

/// Draws the last shape's first method.
void draw(const GpuRank& gpu, const ShapeTimes& shape, const std::string& path) {
  const MethodTimes& method = shape.methods.front();
  const Simulation measured = measured_timeline(gpu, method.plans);
  if (!gpu.is_first()) return;
  const TimelineCaption caption{
      .title = describe(shape.problem),
      .subtitle = fmt::format("{}; {}", describe(method.schedule()), gpu.fabric()),
      .source = TimelineSource::measured,
      .sequential = SequentialRun{.gemm_us = shape.gemm_us,
                                  .communication_us = shape.comm_us,
                                  .total_us = shape.sequential_us,
                                  .communicates_first = communicates_first(shape.problem.operation)}};
  write_file("--timeline", path, timeline_svg(measured, caption));
}

void save_fastest(const ShapeTimes& shape, const std::string& path) {
  const auto& fastest = *std::ranges::min_element(shape.methods, {}, &MethodTimes::median_us);
  write_file("--save", path, plans_to_json(fastest.plans));
}

/// Whether every result is right.
bool bench_rank(const GpuRank& gpu, const OverlapBench& bench) {
  Tuner tuner(gpu.communicator());  // which knows the machine, as it was measured here if it was
  const OverlapBenchmark benchmark{tuner.machine(),
                                   methods_of(bench),
                                   tried_comm_multiprocessors(bench, gpu.has_peer_access()),
                                   bench.repetitions,
                                   bench.rms_norm ? Reader::norm : Reader::caller,
                                   /*own_result=*/!bench.tuned};
  for (const int count : benchmark.comm_multiprocessors) {
    require(count < gpu.multiprocessors(), "--comm-multiprocessors", count,
            fmt::format("must leave some of the {} multiprocessors to the GEMM", gpu.multiprocessors()));
  }
  std::optional<Json> machine;
  if (gpu.is_first()) {
    machine = machine_record(bench, gpu);
    fmt::print("{} GPUs, {}, {}{}; times of the slowest rank, median, 10 % and 90 %\n", bench.gpus,
               gpu.fabric(), name(bench.problems.front().data_type),
               bench.rms_norm ? ", with residual and RMSNorm" : "");
    print_headers();
  }
  Report report(gpu.fabric(), benchmark);
  const auto save = [&] {
    write_file("--json", bench.json, Json{{"machine", *machine}, {"rows", report.rows()}}.dump(1) + "\n");
  };
  // After each shape: a benchmark that is ended early loses none.
  const bool saves_often = gpu.is_first() && !bench.json.empty() && is_replaceable("--json", bench.json);
  ShapeTimes last;
  for (const Problem& problem : bench.problems) {
    std::vector<Schedule> found;
    if (bench.tuned) found.push_back(tuner.tune(problem, benchmark.reader).schedule);
    last = bench.plans.empty() ? measure_shape(gpu, benchmark, problem, found)
                               : measure_plans(gpu, bench.plans, bench.repetitions);
    report.add(last, bench.tuned ? tuner.trials() : std::vector<Trial>{}, /*print=*/gpu.is_first());
    for (const std::string& refusal : last.refusals) {
      if (gpu.is_first()) fmt::print("{:>23} not measured: {}\n", "", refusal);
    }
    if (saves_often) save();
  }
  if (gpu.is_first()) {
    report.print_means();
    note_state_after(*machine);
    if (!bench.json.empty()) save();
    if (!bench.save.empty()) save_fastest(last, bench.save);
  }
  if (!bench.timeline.empty()) draw(gpu, last, bench.timeline);
  return report.is_right();
}

}  // namespace

int bench_overlap(const OverlapBench& bench) {
  std::atomic<bool> right = true;
  run_on_gpus(bench.gpus, [&](const GpuRank& gpu) {
    if (!bench_rank(gpu, bench)) right = false;
  });
  return right ? exit_success : exit_failure;
}

}  // namespace flashoverlap::cli
