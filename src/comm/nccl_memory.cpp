#include "comm/nccl_memory.hpp"

#include "comm/process_environment.hpp"

namespace flashoverlap {

ncclResult_t NcclWindow::open(std::size_t bytes) {
  // Before, its kernels for shared memory wait for a lost rank for ever, whatever is aborted.
  constexpr int first_that_can_be_aborted = 22'907;
  int version = 0;
  const ncclResult_t known = ncclGetVersion(&version);
  if (known != ncclSuccess || version < first_that_can_be_aborted) return known;
  // It would register the memory all the same, and not use it.
  if (peer_access_is_disabled(environment_variable)) return ncclSuccess;
  return ncclCommWindowRegister(communicator_, memory_.get(), bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
}

NcclWindow::~NcclWindow() {
  if (window_ != nullptr) ncclCommWindowDeregister(communicator_, window_);
}

}  // namespace flashoverlap
