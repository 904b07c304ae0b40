#include "measure/plan_check.hpp"

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "cuda/graph.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/operator.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/host_comparison.hpp"
#include "measure/pitched_matrix.hpp"
#include "measure/sampled_reference.hpp"

namespace flashoverlap {
namespace {

/// Of single elements, in root mean squares of the result: far above what rounding does to one, far below
/// the difference between two unrelated results.
constexpr double largest_difference = 0.25;

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
                         {plan_.buffer(BufferRole::out).rows, plan_.buffer(BufferRole::out).cols},
                         plan_.buffer(BufferRole::out).cols),
        random_(static_cast<std::uint64_t>(check.seed) * max_ranks + static_cast<std::uint64_t>(gpu.rank())) {
    OperatorOptions options{.own_result = check.own_result};
    if (check.pitched) {
      const auto pad = [&](BufferRole role, std::optional<PitchedMatrix>& padded, std::int64_t& pitch) {
        const Buffer& shape = plan_.buffer(role);
        if (!padding_obstacle(plans, role, check.own_result).empty()) return;
        padded.emplace(plan_.problem.data_type, Shape{shape.rows, shape.cols});
        pitch = padded->pitch();
      };
      pad(BufferRole::a, padded_a_, options.pitches.a);
      pad(BufferRole::b, padded_b_, options.pitches.b);
      pad(BufferRole::out, padded_out_, options.pitches.out);
    }
    gpu.barrier();
    operator_.emplace(plans, gpu.communicator(), options);
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
    for (const auto* padded : {&padded_a_, &padded_b_}) note_padding(*padded);
    const auto worst = gpu_.maxima(
        std::vector<double>{verdict.difference.relative, verdict.difference.largest, verdict.reference_error,
                            static_cast<double>(verdict.different_replays), padding_written_ ? 1.0 : 0.0});
    gpu_.barrier();
    return {{worst[0], worst[1]}, worst[2], static_cast<int>(worst[3]), worst[4] > 0, verdict.limit};
  }

 private:
  std::uint64_t begin_run(int run) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(check_.seed) * 1'000'003 + static_cast<std::uint64_t>(run);
    operands_.fill(seed, gpu_.rank(), gpu_.stream());
    if (padded_a_) padded_a_->read_from(operands_.a.data(), gpu_.stream());
    if (padded_b_) padded_b_->read_from(operands_.b.data(), gpu_.stream());
    return seed;
  }

  void delay() {
    if (check_.delays == 0) return;
    gpu_.synchronize();
    const auto most = static_cast<std::uint64_t>(check_.delays);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (most + 1)));
  }

  void poison(const DeviceArray<Element>& out) {
    if (padded_out_) return padded_out_->fill_with_nan(gpu_.stream());
    if (out.size() > 0)
      FLASHOVERLAP_CUDA(cudaMemsetAsync(target(out), 0xFF, out.size() * sizeof(Element), gpu_.stream()));
  }

  /// Where runs leave their result.
  void* target(const DeviceArray<Element>& out) const {
    if (padded_out_) return padded_out_->data();
    return check_.own_result ? operator_->result() : out.data();
  }

  void note_padding(const std::optional<PitchedMatrix>& padded) {
    if (padded && !padded->padding_is_untouched(gpu_.stream())) padding_written_ = true;
  }

  void keep_result(const DeviceArray<Element>& out) {
    if (padded_out_) return padded_out_->write_to(out.data(), gpu_.stream());
    if (!check_.own_result) return;
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(out.data(), operator_->result(), out.size() * sizeof(Element),
                                      cudaMemcpyDeviceToDevice, gpu_.stream()));
  }

  void launch(const DeviceArray<Element>& out) {
    operator_->run(padded_a_ ? padded_a_->data() : operands_.a.data(),
                   padded_b_ ? padded_b_->data() : operands_.b.data(), target(out), gpu_.stream());
  }

  void run_operator(const DeviceArray<Element>& out) {
    poison(out);
    launch(out);
    operator_->wait();
    note_padding(padded_out_);
    keep_result(out);
  }

  Difference difference_from_baseline() {
    baseline_.run(order_.sorted(operands_.a, gpu_.stream()), operands_.b.data());
    gpu_.synchronize();
    return compare_(out_.data(), baseline_.result(), gpu_.stream());
  }

  int different_replays() {
    const CudaGraph graph(gpu_.stream(), [this] { launch(replayed_); });
    int wrong = 0;
    for (int run = 0; run < check_.runs; ++run) {
      begin_run(check_.runs + run);
      run_operator(out_);
      delay();
      poison(replayed_);
      graph.launch(gpu_.stream());
      keep_result(replayed_);
      gpu_.synchronize();
      note_padding(padded_out_);
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
  std::optional<PitchedMatrix> padded_a_;
  std::optional<PitchedMatrix> padded_b_;
  std::optional<PitchedMatrix> padded_out_;
  bool padding_written_ = false;
  std::optional<Operator> operator_;
};

}  // namespace

bool PlanVerdict::holds() const {
  return difference.relative < limit && difference.largest < largest_difference && reference_error < limit &&
         different_replays == 0 && !padding_written;
}

PlanVerdict check_plans(const GpuRank& gpu, const std::vector<Plan>& plans, const PlanCheck& check) {
  const PlanVerdict verdict = CheckedRuns(gpu, plans, check).judge();
  gpu.barrier();
  return verdict;
}

}  // namespace flashoverlap
