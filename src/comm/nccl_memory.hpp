#pragma once

#include <nccl.h>

#include <cstddef>

namespace flashoverlap {

/// GPU memory that collectives of one communicator can reach without buffers in between.
class NcclMemory {
 public:
  explicit NcclMemory(ncclComm_t communicator) noexcept : communicator_(communicator) {}
  /// What was enqueued with it has ended, and the communicator is still there.
  ~NcclMemory();
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  /// Once.
  ncclResult_t allocate(std::size_t bytes);
  /// Every rank calls it at the same time, with as many bytes, and waits on the host for the others. Does
  /// nothing where NCCL is too old or may not let its GPUs address each other. Where they cannot, it may
  /// count as shared though NCCL makes no use of it.
  ncclResult_t share();
  bool is_shared() const noexcept { return window_ != nullptr; }
  void* data() const noexcept { return memory_; }

 private:
  ncclComm_t communicator_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  ncclWindow_t window_ = nullptr;
};

}  // namespace flashoverlap
