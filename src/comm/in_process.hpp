/// Collectives and point-to-point transfers among ranks that are threads of one process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/bounded_wait.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Each rank calls from one thread at a time. The i-th collective of every rank is the same one; a pair of
/// ranks matches sends and receives in order. Every call returns when its rank's part is done: its
/// destinations are written and its sources are free. `caller` names the caller's step in reports. A call
/// that finds no counterpart in time throws `WaitExpired`, one whose counterpart does not fit `Error`; that
/// stops everyone.
class InProcessCommunicator {
 public:
  struct Send {
    int peer = 0;
    std::span<const std::byte> data;
  };
  struct Receive {
    int peer = 0;
    std::span<std::byte> data;
  };

  /// `progress`: see `BoundedWait`.
  InProcessCommunicator(int ranks, DataType data_type, std::chrono::milliseconds wait_limit,
                        const RunProgress* progress = nullptr);

  /// Sums are made in fp32 in rank order and rounded once.
  void all_reduce(int rank, const std::string& caller, std::span<std::byte> data);
  /// Part r of the sum goes to rank r.
  void reduce_scatter(int rank, const std::string& caller, std::span<const std::byte> source,
                      std::span<std::byte> destination);
  void all_gather(int rank, const std::string& caller, std::span<const std::byte> source,
                  std::span<std::byte> destination);
  /// All of them at the same time.
  void exchange(int rank, const std::string& caller, std::span<const Send> sends,
                std::span<const Receive> receives);

  /// Ends every wait by `Stopped`, until `restart`.
  void stop() { waiting_.stop(); }
  /// As new; nobody is calling.
  void restart();

 private:
  /// One rank's part in a collective.
  struct Call {
    MessageKind kind = MessageKind::all_reduce;
    std::string caller;
    std::span<const std::byte> source;
    std::span<std::byte> destination;
  };
  /// What is posted from one rank to another and not yet matched.
  struct Channel {
    std::vector<std::span<const std::byte>> sends;
    std::vector<std::span<std::byte>> receives;
  };

  /// Calls `work(lock)` with the lock held. Where it throws, everyone is stopped before the lock is given
  /// back: what the rank has left here for others goes with it.
  template <typename Work>
  void take_part(const Work& work);
  /// The last rank to join performs the collective for all.
  void join(int rank, Call call);
  void require_agreement() const;
  void perform_collective() const;
  std::vector<std::byte> sum_of_sources() const;
  /// Transfers what both sides have posted; the caller has posted last.
  void match(int source, int destination, const std::string& caller);
  std::string describe_missing_ranks() const;
  std::string describe_missing_peers(int rank) const;

  const DataType data_type_;
  BoundedWait waiting_;
  // Everything below is guarded by waiting_'s lock.
  std::vector<std::optional<Call>> calls_;  // by rank; empty: has not joined yet
  std::size_t joined_ = 0;
  std::uint64_t collectives_done_ = 0;
  std::map<std::pair<int, int>, Channel> channels_;  // by source and destination
  std::vector<std::size_t> unmatched_parts_;         // by rank
};

}  // namespace flashoverlap
