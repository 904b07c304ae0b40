#include "measure/collective_curves.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "cuda/random_fill.hpp"
#include "cuda/timer.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/lone_gemm.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

/// The GEMM that runs concurrently with the communication of an overlap: keeps some of a GPU's
/// multiprocessors busy, on a stream of its own.
class BackgroundGemm {
 public:
  BackgroundGemm(const KernelFamily& family, int multiprocessors)
      : kernel_(make_plan(problem(),
                          kernel_schedule(family, problem(), Strategy::sequential, Layout::natural,
                                          multiprocessors, /*comm_multiprocessors=*/0),
                          0),
                stream_) {
    operands_.fill(/*seed=*/0, /*rank=*/0, stream_);
    kernel_.launch(operands_, stream_);
    once_us_ = CudaTimer().microseconds(stream_, [this] { kernel_.launch(operands_, stream_); });
  }
  ~BackgroundGemm() { cudaStreamSynchronize(stream_); }
  BackgroundGemm(const BackgroundGemm&) = delete;
  BackgroundGemm& operator=(const BackgroundGemm&) = delete;

  /// Enqueues GEMMs that take at least this long.
  void keep_busy(double microseconds) {
    for (double us = 0; us < microseconds; us += once_us_) kernel_.launch(operands_, stream_);
  }
  void wait() const { FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  static Problem problem() { return {.m = 4096, .n = 4096, .k = 4096}; }  // a few waves

  CudaStream stream_;
  GpuOperands operands_{problem()};
  LoneGemm kernel_;
  double once_us_ = 0;
};

/// One collective of `count` elements of the whole matrix.
void communicate(const Communicator& communicator, Operation operation, void* data, void* result,
                 std::int64_t count, cudaStream_t stream) {
  const std::int64_t part = count / communicator.ranks();
  if (operation == Operation::gemm_all_reduce) {
    communicator.all_reduce(data, count, DataType::bf16, stream);
  } else if (operation == Operation::gemm_reduce_scatter) {
    communicator.reduce_scatter(data, result, part, DataType::bf16, stream);
  } else {
    std::vector<Communicator::Part> sends;
    std::vector<Communicator::Part> receives;
    for (int peer = 0; peer < communicator.ranks(); ++peer) {
      sends.push_back({peer, static_cast<Element*>(data) + peer * part, part});
      receives.push_back({peer, static_cast<Element*>(result) + peer * part, part});
    }
    communicator.exchange(sends, receives, DataType::bf16, stream);
  }
}

}  // namespace

const CollectiveCosts& CollectiveCurves::operator()(int thread_blocks) {
  const auto [place, is_new] = costs_.try_emplace(thread_blocks);
  if (is_new) place->second = measure(thread_blocks);
  return place->second;
}

CollectiveCosts CollectiveCurves::measure(int thread_blocks) {
  constexpr std::int64_t largest = 64 << 20;
  const Communicator communicator = gpu_.communicator().capped(thread_blocks);
  // Shared as what an operator owns; sends and receives are as fast from any memory.
  const CollectiveMemory source = communicator.allocate(largest);
  const CollectiveMemory destination = communicator.allocate(largest);
  fill_random(source.data.get(), largest / sizeof(Element), DataType::bf16,
              static_cast<std::uint64_t>(gpu_.rank()), gpu_.stream());
  std::optional<BackgroundGemm> gemm;
  if (thread_blocks > 0) gemm.emplace(gpu_.family(), gpu_.multiprocessors() - thread_blocks);
  gpu_.barrier();
  const auto least_us = [&](std::int64_t bytes, const std::function<void()>& prepare) {
    constexpr int repetitions = 3;
    std::vector<double> times;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      prepare();
      times.push_back(gpu_.elapsed_us([&] {
        communicate(communicator, operation_, source.data.get(), destination.data.get(),
                    bytes / static_cast<std::int64_t>(sizeof(Element)), gpu_.stream());
      }));
    }
    return std::ranges::min(gpu_.maxima(times));
  };
  CollectiveCosts costs;
  // More bytes take no less time.
  const auto add = [](Curve& curve, std::int64_t bytes, double us) {
    if (!curve.points.empty()) us = std::max(us, curve.points.back().microseconds);
    curve.points.push_back({static_cast<double>(bytes), us});
  };
  least_us(largest, [] {});  // connects
  for (std::int64_t bytes = 1 << 20; bytes <= largest; bytes *= 4) {
    const double alone_us = least_us(bytes, [] {});
    add(costs.alone, bytes, alone_us);
    if (gemm) {
      constexpr double meeting_us = 500;  // until all ranks have begun
      constexpr double worst_slowdown = 5;
      const auto keep_busy = [&] { gemm->keep_busy(meeting_us + worst_slowdown * alone_us); };
      add(costs.during_gemm, bytes, std::max(alone_us, least_us(bytes, keep_busy)));
      gemm->wait();
    }
  }
  gpu_.barrier();
  if (thread_blocks > 0 && !is_fast_enough(source.is_shared, thread_blocks)) costs.alone = (*this)(0).alone;
  return costs;
}

}  // namespace flashoverlap
