#include "measure/plan_check.hpp"

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "flashoverlap/operator.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/host_comparison.hpp"
#include "measure/sampled_reference.hpp"

namespace flashoverlap {
namespace {

/// Of single elements, in root mean squares of the result: far above what rounding does to one, far below
/// the difference between two unrelated results.
constexpr double largest_difference = 0.25;

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

/// Everything is allocated before the first run, as allocating while collectives run can block.
class CheckedRuns {
 public:
  CheckedRuns(const GpuRank& gpu, const std::vector<Plan>& plans, const PlanCheck& check)
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
    operator_.emplace(plans, gpu.communicator(), OperatorOptions{.own_result = check.own_result});
  }
  ~CheckedRuns() {
    try {
      gpu_.synchronize();
    } catch (const Error&) {
      // What has gone wrong is known already, or the communicator has just been aborted for it.
    }
  }

  /// The same on every rank.
  PlanVerdict judge() {
    PlanVerdict verdict{.limit = error_limit(plan_.problem.data_type)};
    for (int run = 0; run < check_.runs; ++run) {
      const std::uint64_t seed = begin_run(run);
      delay();
      run_operator(out_);
      verdict.difference = worse(verdict.difference, difference_from_baseline());
      if (run > 0) continue;
      verdict.reference_error = sampled_error(gpu_, plan_, out_, seed, operands_);
      gpu_.barrier();
    }
    if (check_.graph) verdict.different_replays = different_replays();
    const auto worst = gpu_.maxima(std::vector<double>{verdict.difference.relative,
                                                       verdict.difference.largest, verdict.reference_error,
                                                       static_cast<double>(verdict.different_replays)});
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

  int different_replays() {
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
  const PlanCheck& check_;
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

}  // namespace

bool PlanVerdict::holds() const {
  return difference.relative < limit && difference.largest < largest_difference && reference_error < limit &&
         different_replays == 0;
}

PlanVerdict check_plans(const GpuRank& gpu, const std::vector<Plan>& plans, const PlanCheck& check) {
  const PlanVerdict verdict = CheckedRuns(gpu, plans, check).judge();
  gpu.barrier();
  return verdict;
}

}  // namespace flashoverlap
