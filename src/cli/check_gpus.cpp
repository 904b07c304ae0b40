#include "cli/check_gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <thread>

#include "cli/destinations.hpp"
#include "cli/plan_summary.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/host_comparison.hpp"
#include "measure/sampled_reference.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "search/kernel_schedules.hpp"

namespace flashoverlap::cli {
namespace {

constexpr int comm_multiprocessors = 16;
constexpr int wanted_waves = 6;  // so that small shapes have several groups too
/// Of single elements, in root mean squares of the result: far above what rounding does to one, far below
/// what two results that have nothing to do with each other differ by.
constexpr double element_limit = 0.25;

struct Case {
  Problem problem;
  Strategy strategy;
  Layout layout;
  int rounds = 1;
  bool own_result = false;  // see OperatorOptions
};

struct Verdict {
  Difference difference;       // from cuBLASLt + NCCL, the worst of all runs and ranks
  double reference_error = 0;  // from fp64
  int wrong_replays = 0;
  double limit = 0;

  bool holds() const {
    return difference.relative < limit && difference.largest < element_limit && reference_error < limit &&
           wrong_replays == 0;
  }
};

/// A captured run.
class Graph {
 public:
  template <typename Launch>
  Graph(cudaStream_t stream, const Launch& launch) {
    FLASHOVERLAP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch();
    cudaGraph_t graph = nullptr;
    FLASHOVERLAP_CUDA(cudaStreamEndCapture(stream, &graph));
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    FLASHOVERLAP_CUDA(status);
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const { FLASHOVERLAP_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_{};
};

/// One case on one rank. Everything is allocated before the first run, as allocating beside running
/// collectives can block.
class CaseRun {
 public:
  CaseRun(const GpuRank& gpu, const GpuCheck& check, const std::vector<Plan>& plans, bool own_result)
      : gpu_(gpu),
        check_(check),
        plan_(plans[static_cast<std::size_t>(gpu.rank())]),
        operands_(plan_.problem),
        order_(plans, gpu.rank()),
        baseline_(gpu, plan_.problem),
        compare_(plan_),
        out_(elements_of(plan_.buffer(BufferRole::out))),
        replayed_(check.graph ? out_.size() : 0),
        compare_replays_(plan_.problem.data_type,
                         {plan_.buffer(BufferRole::out).rows, plan_.buffer(BufferRole::out).cols}),
        random_(static_cast<std::uint64_t>(check.seed) * max_ranks + static_cast<std::uint64_t>(gpu.rank())) {
    gpu.barrier();
    operator_.emplace(plans, gpu.communicator(), OperatorOptions{.own_result = own_result});
  }
  ~CaseRun() {
    try {
      gpu_.synchronize();
    } catch (const Error&) {
      // What has gone wrong is known already, or the communicator has just been aborted for it.
    }
  }

  /// The same on every rank.
  Verdict judge() {
    Verdict verdict{.limit = error_limit(plan_.problem.data_type)};
    for (int run = 0; run < check_.runs; ++run) {
      const std::uint64_t seed = begin_run(run);
      delay();
      run_operator(out_);
      verdict.difference = worse(verdict.difference, difference_from_baseline());
      if (run > 0) continue;
      verdict.reference_error = sampled_error(gpu_, plan_, out_, seed, operands_);
      gpu_.barrier();
    }
    if (check_.graph) verdict.wrong_replays = wrong_replays();
    const auto worst =
        gpu_.maxima(std::vector<double>{verdict.difference.relative, verdict.difference.largest,
                                        verdict.reference_error, static_cast<double>(verdict.wrong_replays)});
    gpu_.barrier();
    return {{worst[0], worst[1]}, worst[2], static_cast<int>(worst[3]), verdict.limit};
  }

 private:
  std::uint64_t begin_run(int run) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(check_.seed) * 1'000'003 + static_cast<std::uint64_t>(run);
    operands_.fill(seed, gpu_.rank(), gpu_.stream());
    return seed;
  }

  void delay() {
    if (check_.delays == 0) return;
    gpu_.synchronize();
    const auto most = static_cast<std::uint64_t>(check_.delays);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (most + 1)));
  }

  void poison(const DeviceArray<Element>& out) {
    if (out.size() > 0)
      FLASHOVERLAP_CUDA(cudaMemsetAsync(target(out), 0xFF, out.size() * sizeof(Element), gpu_.stream()));
  }

  /// Where runs leave their result.
  void* target(const DeviceArray<Element>& out) const {
    return operator_->result() != nullptr ? operator_->result() : out.data();
  }

  void keep_result(const DeviceArray<Element>& out) {
    if (operator_->result() == nullptr) return;
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(out.data(), operator_->result(), out.size() * sizeof(Element),
                                      cudaMemcpyDeviceToDevice, gpu_.stream()));
  }

  void run_operator(const DeviceArray<Element>& out) {
    poison(out);
    operator_->run(operands_.a.data(), operands_.b.data(), target(out), gpu_.stream());
    operator_->wait();
    keep_result(out);
  }

  Difference difference_from_baseline() {
    baseline_.run(order_.sorted(operands_.a, gpu_.stream()), operands_.b.data());
    gpu_.synchronize();
    return compare_(out_.data(), baseline_.result(), gpu_.stream());
  }

  int wrong_replays() {
    const Graph graph(gpu_.stream(), [this] {
      operator_->run(operands_.a.data(), operands_.b.data(), target(replayed_), gpu_.stream());
    });
    int wrong = 0;
    for (int run = 0; run < check_.runs; ++run) {
      begin_run(check_.runs + run);
      run_operator(out_);
      delay();
      poison(replayed_);
      graph.launch(gpu_.stream());
      keep_result(replayed_);
      gpu_.synchronize();
      if (!compare_replays_(replayed_.data(), out_.data(), gpu_.stream()).equal) ++wrong;
    }
    gpu_.barrier();
    return wrong;
  }

  const GpuRank& gpu_;
  const GpuCheck& check_;
  const Plan& plan_;
  GpuOperands operands_;
  DeliveryOrder order_;
  GpuBaseline baseline_;
  GpuComparison compare_;
  DeviceArray<Element> out_;
  DeviceArray<Element> replayed_;
  GpuComparison compare_replays_;
  std::mt19937_64 random_;
  std::optional<Operator> operator_;
};

struct Sizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

std::vector<Sizes> shapes(const GpuCheck& check) {
  constexpr Sizes built_in[]{{128, 256, 64},     {1000, 776, 72},    {840, 1288, 520},
                             {2048, 2048, 1024}, {3000, 3592, 1048}, {4096, 4096, 2048}};
  std::vector<Sizes> wanted;
  for (const auto& [m, n, k] : built_in) {
    const std::int64_t divisible_m = divide_up(m, check.gpus) * check.gpus;
    const Sizes sizes{check.m > 0 ? check.m : divisible_m, check.n > 0 ? check.n : n,
                      check.k > 0 ? check.k : k};
    wanted.push_back(sizes);
    if (check.m > 0 && check.n > 0 && check.k > 0) break;
  }
  return wanted;
}

/// All-to-alls have uneven destinations; of all_gather_gemm there are two, one for each operand.
std::vector<Problem> problems(const GpuCheck& check, Operation operation, const Sizes& sizes,
                              std::uint64_t seed) {
  Problem problem{.operation = operation,
                  .m = sizes.m,
                  .n = sizes.n,
                  .k = sizes.k,
                  .ranks = check.gpus,
                  .data_type = check.data_type};
  if (is_all_to_all(operation)) problem.destinations = uneven_destinations(problem, seed);
  if (operation == Operation::all_to_all_gemm) {
    for (auto& rows : problem.destinations) std::ranges::sort(rows);
  }
  std::vector<Problem> wanted{problem};
  if (operation == Operation::all_gather_gemm) {
    problem.gathered = Operand::b;
    const std::int64_t multiple = std::int64_t{8} * check.gpus;
    if (check.n == 0) problem.n = divide_up(problem.n, multiple) * multiple;
    if (problem.n % check.gpus == 0) wanted.push_back(problem);
  }
  return wanted;
}

std::vector<Case> cases(const GpuCheck& check) {
  using enum Operation;
  const auto all_if_empty = [](auto chosen, decltype(chosen) all) { return chosen.empty() ? all : chosen; };
  std::vector<Case> wanted;
  for (const Operation operation : all_if_empty(
           check.operations,
           {gemm_all_reduce, gemm_reduce_scatter, gemm_all_to_all, all_gather_gemm, all_to_all_gemm})) {
    std::uint64_t seed = static_cast<std::uint64_t>(check.seed);
    for (const Sizes& sizes : shapes(check)) {
      for (const Problem& problem : problems(check, operation, sizes, ++seed)) {
        check_runs_on_gpus(problem);
        for (const Strategy strategy : all_if_empty(
                 check.strategies,
                 {Strategy::signal, Strategy::sequential, Strategy::copy, Strategy::store, Strategy::p2p})) {
          for (const Layout layout : all_if_empty(check.layouts, {Layout::natural, Layout::tiled})) {
            if (!supports(operation, strategy, layout)) continue;
            const bool in_rounds = works_in_rounds(problem, strategy);
            const bool sums = operation == gemm_all_reduce || operation == gemm_reduce_scatter;
            if (!in_rounds || !sums) wanted.push_back({problem, strategy, layout});
            if (in_rounds) wanted.push_back({problem, strategy, layout, /*rounds=*/sums ? 2 : 3});
            if (sums && strategy == Strategy::signal)
              wanted.push_back({problem, strategy, layout, /*rounds=*/1, /*own_result=*/true});
          }
        }
      }
    }
  }
  require(!wanted.empty(), "--layout", "tiled", "needs --strategy signal");
  return wanted;
}

Schedule schedule_for(const Case& wanted, int multiprocessors) {
  const int reserved = wanted.strategy == Strategy::sequential ? 0 : comm_multiprocessors;
  const int left = multiprocessors - reserved;
  Schedule schedule = gpu_schedule(wanted.problem, wanted.strategy, wanted.layout, left, reserved);
  schedule.rounds = wanted.rounds;
  if (reserved == 0) return schedule;
  const std::int64_t entries = entry_count(schedule, wanted.problem.m, wanted.problem.n);
  const auto few = static_cast<int>(divide_up(entries, wanted_waves)) * schedule.cluster_rows;
  schedule.multiprocessors = std::clamp(few, schedule.cluster_rows, left);
  if (schedule.first_multiprocessors > 0)
    schedule.first_multiprocessors = schedule.multiprocessors + reserved;
  return schedule;
}

std::string described(const Case& wanted) {
  const Problem& problem = wanted.problem;
  return fmt::format("{:<20} {:<10} {:<7} {:<6} {:>5} {:>5} {:>5} {:>6}", name(problem.operation),
                     name(wanted.strategy), name(wanted.layout), wanted.own_result ? "own" : "", problem.m,
                     problem.n, problem.k, wanted.rounds);
}

void print_headers(const GpuCheck& check) {
  fmt::print("{} ranks, {}, {}, limit {:.0e}\n", check.gpus, fabric(), name(check.data_type),
             error_limit(check.data_type));
  fmt::print("{:<20} {:<10} {:<7} {:<6} {:>5} {:>5} {:>5} {:>6}  {:>6} {:>6}  {:>8} {:>8} {:>7}\n",
             "operation", "strategy", "layout", "result", "m", "n", "k", "rounds", "groups", "runs", "error",
             "fp64", "element");
}

void print(const Case& wanted, const std::vector<Plan>& plans, int runs, const Verdict& verdict) {
  fmt::print("{}  {:>6} {:>6}  {:>8.1e} {:>8.1e} {:>7.3f}  {}{}\n", described(wanted),
             group_count(plans.front()), runs, verdict.difference.relative, verdict.reference_error,
             verdict.difference.largest, verdict.holds() ? "ok" : "FAILED",
             verdict.wrong_replays > 0 ? fmt::format(", {} replays differ", verdict.wrong_replays) : "");
  std::fflush(stdout);
}

/// Whether all cases are right; the same on every rank.
bool check_rank(const GpuRank& gpu, const GpuCheck& check, const std::vector<Case>& wanted) {
  if (gpu.is_first()) print_headers(check);
  int failures = 0;
  int skipped = 0;
  for (const Case& each : wanted) {
    std::vector<Plan> plans;
    try {
      plans = make_plans(each.problem, schedule_for(each, gpu.multiprocessors()));
    } catch (const InvalidArgument& refusal) {
      ++skipped;
      if (gpu.is_first()) fmt::print("{}  skipped: {}\n", described(each), refusal.what());
      continue;
    }
    Verdict verdict;
    try {
      verdict = CaseRun(gpu, check, plans, each.own_result).judge();
    } catch (const InvalidArgument& refusal) {
      if (!check.strategies.empty()) throw;
      ++skipped;
      if (gpu.is_first()) fmt::print("{}  skipped: {}\n", described(each), refusal.what());
      gpu.barrier();
      continue;
    }
    gpu.barrier();
    if (!verdict.holds()) ++failures;
    if (gpu.is_first()) print(each, plans, check.runs, verdict);
  }
  if (gpu.is_first()) {
    fmt::print("{}: {} cases, {} failed, {} skipped\n", failures == 0 ? "ok" : "FAILED", wanted.size(),
               failures, skipped);
  }
  return failures == 0;
}

}  // namespace

bool check_on_gpus(const GpuCheck& check) {
  const std::vector<Case> wanted = cases(check);
  std::atomic<bool> right = true;
  run_on_gpus(check.gpus, [&](const GpuRank& gpu) { right = check_rank(gpu, check, wanted); },
              {.wait_limit = std::chrono::seconds(check.wait_limit)});
  return right;
}

}  // namespace flashoverlap::cli
