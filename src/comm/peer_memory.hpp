#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/shared_words.hpp"
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

  /// Tells every rank that this one has failed, for ever and at once, through memory of the host.
  void tell_failure() noexcept;
  /// Another rank that has told that, if there is one. Does not wait. Any thread may ask.
  std::optional<int> failed_peer() const noexcept;

 private:
  struct Record;
  struct Header;
  class Allocation;
  class Directory;
  class Abandoning;
  class Mapping;

  Header* header(int rank) const;
  /// What keeps this rank from addressing the memory of another one; empty if nothing does.
  std::string find_obstacle(int rank, const Record& own, const Record& theirs) const;
  std::string open(int rank, const Record& own, const Record& theirs);
  void await_gathered() const;
  void come() noexcept;
  void tell_meetings(std::uint32_t word) noexcept;
  /// Whether what every rank tells of its meetings satisfies `holds` in time; `check` may throw meanwhile.
  template <typename Predicate, typename Check>
  bool told_by_all(std::chrono::milliseconds limit, Predicate holds, Check check) const;

  Communicator communicator_;
  CudaStream stream_;
  std::shared_ptr<Allocation> own_;
  std::vector<std::shared_ptr<Allocation>> neighbours_;  // [rank] in this process
  std::vector<std::unique_ptr<Mapping>> mappings_;       // [rank] in other processes
  std::unique_ptr<SharedWords> words_;  // meetings of each rank, and `farewell`; then whether it has failed
  std::uint32_t meetings_ = 0;
};

}  // namespace flashoverlap
