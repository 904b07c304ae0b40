#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace flashoverlap {

/// GPU memory that collectives of one communicator can reach without buffers in between.
class NcclWindow {
 public:
  NcclWindow(ncclComm_t communicator, std::shared_ptr<void> memory) noexcept
      : communicator_(communicator), memory_(std::move(memory)) {}
  /// What was enqueued with it has ended, and the communicator is still there.
  ~NcclWindow();
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;

  /// Once. Every rank calls it at the same time, with as many bytes, and waits on the host for the others.
  /// Does nothing where NCCL is too old or may not let its GPUs address each other. Where they cannot, it may
  /// count as open though NCCL makes no use of it.
  ncclResult_t open(std::size_t bytes);
  bool is_open() const noexcept { return window_ != nullptr; }

 private:
  ncclComm_t communicator_;
  std::shared_ptr<void> memory_;  // from ncclMemAlloc
  ncclWindow_t window_ = nullptr;
};

}  // namespace flashoverlap
