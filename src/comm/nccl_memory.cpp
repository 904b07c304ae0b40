#include "comm/nccl_memory.hpp"

namespace flashoverlap {

ncclResult_t NcclMemory::allocate(std::size_t bytes) {
  bytes_ = bytes;
  return ncclMemAlloc(&memory_, bytes);
}

ncclResult_t NcclMemory::share() {
  return ncclCommWindowRegister(communicator_, memory_, bytes_, &window_, NCCL_WIN_COLL_SYMMETRIC);
}

NcclMemory::~NcclMemory() {
  if (window_ != nullptr) ncclCommWindowDeregister(communicator_, window_);
  if (memory_ != nullptr) ncclMemFree(memory_);
}

}  // namespace flashoverlap
