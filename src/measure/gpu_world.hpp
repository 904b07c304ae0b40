/// The ranks of a command that runs on GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/kernels.hpp"
#include "measure/process_meeting.hpp"

namespace flashoverlap {

/// One rank as its thread, or its process, sees it. What is enqueued goes to `stream`.
class GpuRank {
 public:
  /// Of the current GPU. Collective.
  explicit GpuRank(Communicator communicator);
  /// Waits on the host for the other ranks of this process, at most four times the communicator's limit, so
  /// that none goes on while another one frees memory; not while an exception is on its way.
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int rank() const noexcept { return communicator_.rank(); }
  int ranks() const noexcept { return communicator_.ranks(); }
  bool is_first() const noexcept { return rank() == 0; }  ///< the one that prints
  const Communicator& communicator() const noexcept { return communicator_; }
  cudaStream_t stream() const noexcept { return stream_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  /// What the ranks communicate over: "nvlink" where each can address the memory of all others, else
  /// "pcie_like", or "network_like" where they have several hosts. The same on every rank.
  std::string_view fabric() const noexcept { return fabric_; }
  bool has_peer_access() const noexcept { return fabric_ == peer_fabric; }
  int hosts() const noexcept { return hosts_; }  ///< on which the ranks are

  /// Waits for the stream, but not longer than twice the communicator's limit: then the communicator is
  /// aborted and `CommunicationError` thrown.
  void synchronize() const;

  /// Waits for the stream, then until all ranks have come here. Needed between giving back memory on one
  /// rank and a collective on another: CUDA may wait for the GPUs of the whole process to free memory.
  void barrier() const;

  /// From begin to end of what `launch` enqueues, in µs. All ranks begin together: after a barrier on the
  /// host and one on the stream, which waits, at most a millisecond, until everything is enqueued.
  double elapsed_us(const std::function<void()>& launch) const;

  /// Every rank's values in rank order, as fp32; the same number on each.
  std::vector<std::vector<double>> gather(std::span<const double> values) const;
  std::vector<double> maxima(std::span<const double> values) const;
  double maximum(double value) const { return maxima({&value, 1}).front(); }

 private:
  static constexpr std::size_t most_gathered = 1 << 14;  // at a time
  static constexpr std::string_view peer_fabric = "nvlink";

  void enqueue_barrier() const;
  void gather_some(std::span<const double> values, std::vector<std::vector<double>>& by_rank) const;
  int count_hosts() const;
  std::string_view find_fabric() const;

  Communicator communicator_;
  CudaStream stream_;
  CudaEvent begin_{cudaEventDefault};
  CudaEvent end_{cudaEventDefault};
  mutable MappedWords enqueued_{1};
  mutable std::uint32_t turn_ = 0;
  DeviceArray<float> sent_;
  DeviceArray<float> received_;
  int multiprocessors_;
  mutable std::optional<ProcessMeeting> meeting_;
  int hosts_ = 1;
  std::string_view fabric_;
};

/// Runs `work` on every rank: in a thread for each of this machine's first GPUs, or, where the environment
/// says that a launcher started a process for each, in this process for its own rank. The first
/// error of any thread is rethrown once all have ended; it aborts the communicators of the others. Throws
/// `InvalidArgument` unless there are this many GPUs, `Error` where there is none.
void run_on_gpus(int gpus, const std::function<void(const GpuRank&)>& work,
                 const CommunicatorOptions& options = {});

}  // namespace flashoverlap
