#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/handles.hpp"
#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// An allocation of every rank that the GPUs of all ranks address: directly within a process, by CUDA IPC
/// between processes of one host. Given back when no rank addresses it any more: within a process the last
/// rank frees it, between processes each waits for the others, at most the communicator's limit, and leaves
/// it allocated if one does not come.
class PeerMemory {
 public:
  /// `bytes` of zeros on this rank, at least 1, and as many as they like on the others. Every rank makes it
  /// at the same time. Throws `InvalidArgument` on every rank if one of them cannot address another one.
  PeerMemory(const Communicator& communicator, std::size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// A rank's memory as this GPU addresses it, aligned to 256 bytes.
  std::byte* of(int rank) const;

  /// Waits on the host until every rank has called this as often: unlike a collective it keeps no GPU busy,
  /// for which CUDA might wait before it gives out or takes back memory. If a rank does not come within the
  /// communicator's limit, the communicator is aborted and `CommunicationError` thrown.
  void meet();

 private:
  struct Record;
  struct Header;
  class Allocation;
  class Mapping;

  Header* header(int rank) const;
  /// What keeps this rank from addressing the memory of another one; empty if nothing does.
  std::string find_obstacle(int rank, const Record& own, const Record& theirs) const;
  std::string open(int rank, const Record& own, const Record& theirs);
  void await_gathered() const;
  void come();
  void tell_all(std::uint32_t word) const;
  /// Whether what every rank has told this one satisfies `holds` in time; `check` may throw meanwhile.
  template <typename Predicate, typename Check>
  bool told_by_all(std::chrono::milliseconds limit, Predicate holds, Check check) const;

  Communicator communicator_;
  CudaStream stream_;
  std::shared_ptr<Allocation> own_;
  std::vector<std::shared_ptr<Allocation>> neighbours_;  // [rank] in this process
  std::vector<std::unique_ptr<Mapping>> mappings_;       // [rank] in other processes
  std::uint32_t meetings_ = 0;
};

}  // namespace flashoverlap
