#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/peer_memory.hpp"
#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/counter_space.hpp"
#include "exec/cuda/graph_marks.hpp"
#include "exec/cuda/past_streams.hpp"
#include "exec/cuda/run_ahead.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/workspace_bytes.hpp"

namespace flashoverlap {

/// What operators share that never run at the same time: memory of every kind, the mappings of their peers'
/// memory, streams, what tells the watch of their runs in graphs, and how far ahead they are enqueued.
class WorkspaceMemory {
 public:
  /// Every rank makes it at the same time. Throws as `PeerMemory` and `Communicator::allocate` do.
  WorkspaceMemory(const WorkspaceBytes& bytes, const Communicator& communicator);

  const WorkspaceBytes& bytes() const noexcept { return bytes_; }

  /// A rank's, as this GPU addresses them; null where it cannot.
  std::byte* counters(int rank) const;
  std::byte* peer_written(int rank) const;
  std::byte* device() const { return device_.data(); }
  /// See `GemmMemory::shares`.
  std::byte* shares() const { return shares_.data(); }
  /// Registered with `collectives`, if NCCL does that; every rank asks at the same time.
  CollectiveMemory collective(const Communicator& collectives);

  /// Whether an address of this GPU lies in it.
  bool contains(const void* address) const;

  /// Counters for one more operator, all zero: where they begin among `counters`, on every rank. Throws
  /// `InvalidArgument` if the operator needs more of anything than there is, or is another communicator's.
  std::int64_t reserve(const WorkspaceBytes& needed, const Communicator& communicator);
  /// By any thread.
  void give_back(std::int64_t counters) noexcept {
    const std::scoped_lock held(reserving_);
    reserved_.give_back(counters);
  }
  /// Counters that one more operator may need, in bytes.
  std::int64_t free_counters() const {
    const std::scoped_lock held(reserving_);
    return reserved_.largest_gap();
  }

  /// See `PeerMemory::meet`; returns at once where there is no peer memory.
  void meet();

  /// Tells every peer that this rank will not answer any more: from then on, what it writes and raises means
  /// nothing.
  void tell_failure() noexcept;
  /// Throws `CommunicationError` naming a peer that has told its failure. Does not wait.
  void throw_if_peer_failed() const;

  PastStreams& past_streams() { return past_streams_; }
  GraphMarks& graph_marks() { return graph_marks_; }
  RunAhead& run_ahead() { return run_ahead_; }

  const CudaStream communication{StreamPriority::high};
  const CudaStream side{StreamPriority::high};  ///< for what runs need not wait for

 private:
  const WorkspaceBytes bytes_;
  Communicator communicator_;
  DeviceArray<std::byte> device_;
  DeviceArray<std::byte> shares_;
  DeviceArray<std::byte> counters_;  // where there is no peer memory
  CollectiveMemory collective_;
  std::vector<std::pair<Communicator, CollectiveMemory>> registered_;
  mutable std::mutex reserving_;
  CounterSpace reserved_{bytes_.counters};
  std::unique_ptr<PeerMemory> peers_;
  GraphMarks graph_marks_{communicator_};
  RunAhead run_ahead_;
  PastStreams past_streams_;
};

}  // namespace flashoverlap
