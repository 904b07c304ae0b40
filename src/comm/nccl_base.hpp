/// The NCCL communicator that the ones which carry transfers are split from.
#pragma once

#include <nccl.h>

#include <memory>
#include <string_view>
#include <utility>

#include "comm/farewell.hpp"
#include "comm/nccl_error.hpp"

namespace flashoverlap {

/// Carries no transfers itself: it is non-blocking, so that whoever waits for the other ranks can give up.
/// Its splits are blocking, as a non-blocking one would start a thread for every group of transfers. Used by
/// one thread at a time. What misses a rank throws `CommunicationError` after the end's limit, and so does
/// every later split.
class NcclBase {
 public:
  /// Every rank joins at the same time, on the GPU `end.device`, which is current.
  NcclBase(const ncclUniqueId& id, const NcclEnd& end);
  ~NcclBase();
  NcclBase(const NcclBase&) = delete;
  NcclBase& operator=(const NcclBase&) = delete;

  const NcclEnd& end() const noexcept { return end_; }

  /// The base of the ranks that pass the same color, in the same order. Every rank splits at the same time.
  std::unique_ptr<NcclBase> split(int color);

  /// All ranks, blocking, for transfers; collectives run on this many thread blocks where NCCL can, never on
  /// more (0: NCCL decides). The caller passes it to `destroy`.
  ncclComm_t split_for_transfers(int thread_blocks);

  /// Frees what a communicator holds. NCCL may wait for the other ranks to do so too, or for an unfinished
  /// transfer: what takes longer than `farewell` allows goes on without being waited for.
  void destroy(ncclComm_t communicator) noexcept;

  Farewell& farewell() const noexcept { return *farewell_; }

 private:
  NcclBase(const NcclEnd& end, std::shared_ptr<Farewell> farewell)
      : end_(end), farewell_(std::move(farewell)) {}

  ncclComm_t split_off(int color, ncclConfig_t config);
  /// Waits until what `call` began is done on this rank.
  void await(std::string_view call);
  void abandon() noexcept;

  NcclEnd end_;
  std::shared_ptr<Farewell> farewell_;  // of all bases split from one
  ncclComm_t base_ = nullptr;           // null: abandoned
  std::shared_ptr<ncclComm_t> part_;    // being split off; NCCL writes it from a thread of its own
};

}  // namespace flashoverlap
