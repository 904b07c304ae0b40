#include "measure/gpu_world.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "comm/give_up.hpp"
#include "comm/peer_memory.hpp"
#include "comm/process_environment.hpp"
#include "comm/run_watch.hpp"
#include "cuda/hold_stream.hpp"
#include "cuda/properties.hpp"
#include "gemm/requirements.hpp"
#include "measure/current_gpu.hpp"

namespace flashoverlap {
namespace {

/// The processes that a launcher has started, one for each rank; nothing where this one is alone.
std::optional<LaunchedProcesses> launched_world() {
  const auto launched = launched_processes(environment_variable);
  return launched && launched->count > 1 ? launched : std::nullopt;
}

/// What the threads of all ranks share: their communicators, and the first error of any.
class Threads {
 public:
  explicit Threads(int ranks) : ends_(static_cast<std::size_t>(ranks)) {}

  void enter(const Communicator& communicator) {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<std::size_t>(communicator.rank())] = communicator;
    if (error_) communicator.abort(abort_reason);
  }

  // This copy must be gone before the rank's thread destroys its own, as all ranks must do so together.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<std::size_t>(rank)].reset();
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    for (const auto& end : ends_) {
      if (end) end->abort(abort_reason);
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr auto* abort_reason = "another rank failed";

  std::mutex mutex_;
  std::vector<std::optional<Communicator>> ends_;
  std::exception_ptr error_;
};

void run_in_threads(int gpus, const std::function<void(const GpuRank&)>& work,
                    const CommunicatorOptions& options) {
  const std::string key = Communicator::make_key();
  Threads shared(gpus);
  const auto run_rank = [&](int rank) {
    try {
      FLASHOVERLAP_CUDA(cudaSetDevice(rank));
      const Communicator communicator(key, rank, gpus, options);
      shared.enter(communicator);
      try {
        work(GpuRank(communicator));
      } catch (...) {
        shared.fail(std::current_exception());
      }
      shared.leave(rank);
    } catch (...) {
      shared.fail(std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < gpus; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  shared.rethrow();
}

void run_in_this_process(const std::function<void(const GpuRank&)>& work,
                         const CommunicatorOptions& options) {
  const Communicator communicator = Communicator::from_environment(options);
  try {
    work(GpuRank(communicator));
  } catch (...) {
    communicator.abort("this rank failed");
    throw;
  }
}

void check_gpus(int gpus) {
  if (const auto launched = launched_world()) {
    require(gpus == launched->count, "--gpus", gpus,
            fmt::format("must be {}, the {} of the launcher", launched->count, launched->variable));
    return;
  }
  const int present = count_gpus();
  require(gpus <= present, "--gpus", gpus, fmt::format("this machine has {} GPUs that can be used", present));
}

}  // namespace

GpuRank::GpuRank(Communicator communicator)
    : communicator_(std::move(communicator)),
      sent_(most_gathered),
      received_(most_gathered * static_cast<std::size_t>(communicator_.ranks())),
      multiprocessors_(current_attribute(cudaDevAttrMultiProcessorCount)) {
  require_family(current_compute_capability());
  received_.set_bytes(0);
  meeting_.emplace(communicator_, gather(ProcessMeeting::ticket()));
  hosts_ = count_hosts();
  fabric_ = find_fabric();
  meeting_->meet();  // what was tried is given back on all ranks before one of them is in a collective again
}

int GpuRank::count_hosts() const {
  const std::uint64_t host = host_identity();
  const auto part = [host](int shift) { return static_cast<double>(host >> shift & 0xFFFFFF); };
  const auto hosts = gather(std::array{part(0), part(24)});  // as fp32 holds them
  return static_cast<int>(std::set(hosts.begin(), hosts.end()).size());
}

std::string_view GpuRank::find_fabric() const {
  if (hosts_ > 1) return "network_like";
  try {
    const PeerMemory tried(communicator_, 1);
    return peer_fabric;
  } catch (const InvalidArgument&) {  // on every rank
    return "pcie_like";
  }
}

GpuRank::~GpuRank() {
  sent_ = {};
  received_ = {};
  if (std::uncaught_exceptions() > 0) return;
  try {
    meeting_->meet();
  } catch (const std::exception&) {
    // A rank that does not come has failed, and says why itself.
  }
}

void GpuRank::synchronize() const {
  // An operator on the stream has half of this, as it can tell what is missing.
  await_stream(stream_, communicator_, after_the_watch(communicator_.options().wait_limit),
               "the GPU did not finish");
}

void GpuRank::enqueue_barrier() const {
  communicator_.all_reduce(received_.data(), 1, DataType::fp32, stream_);
}

void GpuRank::barrier() const {
  if (!meeting_->has_all_ranks()) enqueue_barrier();
  synchronize();
  meeting_->meet();
}

double GpuRank::elapsed_us(const std::function<void()>& launch) const {
  barrier();
  FLASHOVERLAP_CUDA(hold_stream(enqueued_.device(0), ++turn_, stream_));
  enqueue_barrier();
  FLASHOVERLAP_CUDA(cudaEventRecord(begin_, stream_));
  launch();
  FLASHOVERLAP_CUDA(cudaEventRecord(end_, stream_));
  enqueued_.write(0, turn_);
  synchronize();
  return microseconds_between(begin_, end_);
}

std::vector<std::vector<double>> GpuRank::gather(std::span<const double> values) const {
  if (meeting_) barrier();  // what this rank frees before, another one may wait for
  std::vector<std::vector<double>> by_rank(static_cast<std::size_t>(ranks()));
  while (!values.empty()) {
    const auto some = values.first(std::min(values.size(), most_gathered));
    gather_some(some, by_rank);
    values = values.subspan(some.size());
  }
  return by_rank;
}

void GpuRank::gather_some(std::span<const double> values, std::vector<std::vector<double>>& by_rank) const {
  const std::vector<float> own(values.begin(), values.end());
  std::vector<float> all(own.size() * static_cast<std::size_t>(ranks()));
  const auto copy = [this](void* to, const void* from, std::size_t count, cudaMemcpyKind kind) {
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(to, from, count * sizeof(float), kind, stream_));
  };
  copy(sent_.data(), own.data(), own.size(), cudaMemcpyHostToDevice);
  communicator_.all_gather(sent_.data(), received_.data(), std::ssize(own), DataType::fp32, stream_);
  synchronize();
  copy(all.data(), received_.data(), all.size(), cudaMemcpyDeviceToHost);
  synchronize();
  auto part = all.begin();
  for (std::vector<double>& rank : by_rank) {
    rank.insert(rank.end(), part, part + std::ssize(own));
    part += std::ssize(own);
  }
}

std::vector<double> GpuRank::maxima(std::span<const double> values) const {
  const auto by_rank = gather(values);
  std::vector<double> most = by_rank.front();
  for (const std::vector<double>& rank : by_rank) {
    for (std::size_t index = 0; index < most.size(); ++index)
      most[index] = std::max(most[index], rank[index]);
  }
  return most;
}

void run_on_gpus(int gpus, const std::function<void(const GpuRank&)>& work,
                 const CommunicatorOptions& options) {
  check_gpus(gpus);
  launched_world() ? run_in_this_process(work, options) : run_in_threads(gpus, work, options);
}

}  // namespace flashoverlap
