#include "cli/bench_overlap.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/files.hpp"
#include "cli/plan_summary.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/gpu_record.hpp"
#include "measure/host_comparison.hpp"
#include "measure/overlap_benchmark.hpp"
#include "search/kernel_schedules.hpp"

namespace flashoverlap::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  Operation operation;
  int gpus = 0;
  std::vector<int> m{1024, 2048, 4096, 8192, 16384};
  int n = 0;  // 0: those of the models
  int k = 0;
  DataType data_type = DataType::bf16;
  Operand gathered = Operand::a;
  std::vector<Strategy> strategies{Strategy::signal};
  std::vector<Layout> layouts{Layout::natural};
  std::vector<int> comm_sms;  // empty: by fabric
  int repetitions = 0;
  std::string json;
  std::string timeline;

  std::string command() const {
    std::string text =
        fmt::format("flashoverlap bench {} --gpus {} --m {}", name(operation), gpus, fmt::join(m, ","));
    if (n > 0) text += fmt::format(" --n {} --k {}", n, k);
    text += fmt::format(" --dtype {} --strategy {} --layout {} --comm-sms {}", name(data_type),
                        names(strategies), names(layouts), fmt::join(tried_comm_sms(), ","));
    if (gathered != Operand::a) text += fmt::format(" --gather {}", name(gathered));
    if (repetitions > 0) text += fmt::format(" --repetitions {}", repetitions);
    return text;
  }

  std::vector<int> tried_comm_sms() const {
    if (!comm_sms.empty()) return comm_sms;
    // What is slower than NVLink needs fewer multiprocessors to be kept busy.
    return fabric() == "nvlink" ? std::vector{4, 6, 8, 12, 16, 24} : std::vector{2, 4, 8, 16};
  }

  std::vector<Method> methods() const {
    std::vector<Method> wanted;
    for (const Strategy strategy : strategies) {
      for (const Layout layout : layouts) {
        if (supports(operation, strategy, layout)) wanted.push_back({strategy, layout});
      }
    }
    require(!wanted.empty(), "--layout", names(layouts), "needs --strategy signal");
    return wanted;
  }

  std::vector<Problem> problems() const {
    struct Layer {
      int n;
      int k;
    };
    // Of Llama-3 8B, 70B (feed-forward and attention output) and 405B; k is shared out among the ranks. An
    // operand is gathered for the layers before those: n is shared out for A, and B has it in shards.
    std::vector<Layer> layers{{4096, 14336}, {8192, 28672}, {8192, 8192}, {16384, 53248}};
    const bool gathers = operation == Operation::all_gather_gemm;
    for (Layer& layer : layers) {
      if (gathers) std::swap(layer.n, layer.k);
      if (gathers && gathered == Operand::a) layer.n = layer.n / gpus / 8 * 8;
      if (!gathers) layer.k = layer.k / gpus / 8 * 8;
    }
    if (n > 0) layers = {{n, k}};
    std::vector<Problem> wanted;
    for (const Layer& layer : layers) {
      for (const int rows : m) {
        wanted.push_back({.operation = operation,
                          .m = rows,
                          .n = layer.n,
                          .k = layer.k,
                          .ranks = gpus,
                          .data_type = data_type,
                          .gathered = gathered});
        check_runs_on_gpus(wanted.back());
      }
    }
    return wanted;
  }

 private:
  template <typename Enum>
  static std::string names(const std::vector<Enum>& values) {
    std::string text;
    for (const Enum value : values) text += (text.empty() ? "" : ",") + std::string(name(value));
    return text;
  }
};

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

Json machine_record(const Arguments& arguments) {
  Json machine = gpu_machine();
  int nccl = 0;
  ncclGetVersion(&nccl);
  machine["nccl"] = nccl;
  machine["nccl_environment"] = nccl_environment();
  machine["gpus"] = arguments.gpus;
  machine["fabric"] = fabric();
  machine["command"] = arguments.command();
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
  const Schedule& schedule = method.schedule;
  fmt::print(
      "{:<19} {:>6} {:>6} {:>6} | {:>8.1f} {:>8.1f} {:>8.1f} | {:<10} {:<7} {:>6} {:>8} | {:>8.1f} "
      "{:>8.1f} {:>8.1f} | {:>7.3f} {:>11.3f} {:>9.1f} {:>7.3f} {:>8.1e} {:>7.1f}\n",
      name(problem.operation), problem.m, problem.n, problem.k, shape.gemm_us, shape.comm_us,
      shape.sequential_us, name(schedule.strategy), name(schedule.layout), method.groups,
      schedule.comm_multiprocessors, method.median_us, method.p10_us, method.p90_us, speedup, bound_share,
      method.kernel_us, method.exposed(), method.error, method.host_us);
  std::fflush(stdout);
}

/// Rows of the table, and what they say on the average.
class Report {
 public:
  explicit Report(std::string_view used_fabric) : fabric_(used_fabric) {}

  void add(const ShapeTimes& shape, bool print) {
    for (const MethodTimes& method : shape.methods) {
      const double speedup = shape.sequential_us / method.median_us;
      const double bound_share = shape.bound_us() / method.median_us;
      const Problem& problem = shape.problem;
      const Schedule& schedule = method.schedule;
      if (method.error >= error_limit(problem.data_type)) right_ = false;
      if (print) print_row(shape, method, speedup, bound_share);
      rows_.push_back({{"op", name(problem.operation)},
                       {"m", problem.m},
                       {"n", problem.n},
                       {"k", problem.k},
                       {"ranks", problem.ranks},
                       {"dtype", name(problem.data_type)},
                       {"fabric", fabric_},
                       {"strategy", name(schedule.strategy)},
                       {"layout", name(schedule.layout)},
                       {"tile_cols", schedule.tile_cols},
                       {"groups", schedule.groups},
                       {"waves_per_group", schedule.waves_per_group},
                       {"rounds", schedule.rounds},
                       {"comm_sms", schedule.comm_multiprocessors},
                       {"gemm_us", shape.gemm_us},
                       {"comm_us", shape.comm_us},
                       {"sequential_us", shape.sequential_us},
                       {"overlap_us", method.median_us},
                       {"p10_us", method.p10_us},
                       {"p90_us", method.p90_us},
                       {"speedup", speedup},
                       {"bound_share", bound_share},
                       {"kernel_us", method.kernel_us},
                       {"exposed", method.exposed()},
                       {"host_us", method.host_us},
                       {"error", method.error}});
      Means& means = means_[fmt::format("{} {}", name(schedule.strategy), name(schedule.layout))];
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

  std::string_view fabric_;
  Json rows_ = Json::array();
  bool right_ = true;
  std::map<std::string, Means> means_;
};

/// Draws the last shape's first method.
void draw(const GpuRank& gpu, const ShapeTimes& shape, const std::string& path) {
  const Schedule& schedule = shape.methods.front().schedule;
  const Simulation measured = measured_timeline(gpu, shape.problem, schedule);
  if (!gpu.is_first()) return;
  const TimelineCaption caption{
      .title = describe(shape.problem),
      .subtitle = fmt::format("{}; {}", describe(schedule), fabric()),
      .source = TimelineSource::measured,
      .sequential = SequentialRun{.gemm_us = shape.gemm_us,
                                  .communication_us = shape.comm_us,
                                  .total_us = shape.sequential_us,
                                  .communicates_first = communicates_first(shape.problem.operation)}};
  write_file("--timeline", path, timeline_svg(measured, caption));
}

/// Whether every result is right.
bool run_rank(const GpuRank& gpu, const Arguments& arguments, const std::vector<Problem>& problems,
              const OverlapBenchmark& benchmark) {
  for (const int count : benchmark.comm_multiprocessors) {
    require(count < gpu.multiprocessors(), "--comm-sms", count,
            fmt::format("must leave some of the {} multiprocessors to the GEMM", gpu.multiprocessors()));
  }
  std::optional<Json> machine;
  if (gpu.is_first()) {
    if (!arguments.json.empty()) check_writable("--json", arguments.json);
    if (!arguments.timeline.empty()) check_writable("--timeline", arguments.timeline);
    machine = machine_record(arguments);
    fmt::print("{} GPUs, {}, {}; times of the slowest rank, median, 10 % and 90 %\n", arguments.gpus,
               fabric(), name(arguments.data_type));
    print_headers();
  }
  Report report(fabric());
  CollectiveCurves curves(gpu, arguments.operation);
  ShapeTimes last;
  for (const Problem& problem : problems) {
    last = measure_shape(gpu, benchmark, problem, curves);
    report.add(last, /*print=*/gpu.is_first());
  }
  if (gpu.is_first()) {
    report.print_means();
    note_state_after(*machine);
    if (!arguments.json.empty())
      write_file("--json", arguments.json,
                 Json{{"machine", *machine}, {"rows", report.rows()}}.dump(1) + "\n");
  }
  if (!arguments.timeline.empty()) draw(gpu, last, arguments.timeline);
  return report.is_right();
}

int run(const Arguments& arguments) {
  require(arguments.gpus > 0, "--gpus", "(missing)", "must be given");
  require((arguments.n > 0) == (arguments.k > 0), arguments.n > 0 ? "--k" : "--n", "(missing)",
          "--n and --k must be given together");
  check_distinct({}, {{"--json", arguments.json}, {"--timeline", arguments.timeline}});
  const std::vector<Problem> problems = arguments.problems();
  const OverlapBenchmark benchmark{arguments.methods(), arguments.tried_comm_sms(), arguments.repetitions};
  std::atomic<bool> right = true;
  run_on_gpus(arguments.gpus, [&](const GpuRank& gpu) {
    if (!run_rank(gpu, arguments, problems, benchmark)) right = false;
  });
  return right ? exit_success : exit_failure;
}

/// "signal,sequential".
template <typename Enum>
void add_enumerators(CLI::App& parser, const std::string& option, std::vector<Enum>& values,
                     const std::string& help) {
  const auto take = [=, &values](const std::string& text) {
    values.clear();
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      values.push_back(to_enumerator<Enum>(option, text.substr(begin, end - begin)));
      begin = end + 1;
    }
  };
  add_text(parser, option, take, help)->type_name("NAME,...");
}

}  // namespace

Command bench_overlap_command(CLI::App& bench, Operation operation) {
  auto arguments = std::make_shared<Arguments>();
  arguments->operation = operation;
  CLI::App* parser = bench.add_subcommand(std::string(name(operation)),
                                          "Overlapped against cuBLASLt and NCCL one after the other");
  add_integer(*parser, "--gpus", arguments->gpus, "World size: one rank on each of so many GPUs", 1,
              max_ranks);
  add_integers(*parser, "--m", arguments->m, "Rows of A and C; by default 1024 to 16384", 1, 1 << 20);
  add_integer(*parser, "--n", arguments->n, "Columns of C; by default those of Llama-3's layers", 1, 1 << 20);
  add_integer(*parser, "--k", arguments->k, "Columns of A on each rank, with --n", 1, 1 << 20);
  add_enumerator(*parser, "--dtype", arguments->data_type, "bf16 or fp16")->default_str("bf16");
  if (operation == Operation::all_gather_gemm)
    add_enumerator(*parser, "--gather", arguments->gathered, "Operand that is gathered")->default_str("a");
  add_enumerators(*parser, "--strategy", arguments->strategies,
                  "Strategies to measure: " + names_of<Strategy>());
  add_enumerators(*parser, "--layout", arguments->layouts, "Layouts to measure: natural, tiled");
  add_integers(*parser, "--comm-sms", arguments->comm_sms,
               "Multiprocessors to leave to NCCL or copy blocks, the best is taken", 1, 64);
  add_integer(*parser, "--repetitions", arguments->repetitions, "By default as many as fit half a second", 1,
              1000);
  add_path(*parser, "--json", arguments->json, "File to write the figures to");
  add_path(*parser, "--timeline", arguments->timeline, "Picture (SVG) of a run of the last shape");
  parser->footer(fmt::format("Example: flashoverlap bench {} --gpus 8 --m 4096,8192 --layout natural,tiled\n",
                             name(operation)));
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace flashoverlap::cli
