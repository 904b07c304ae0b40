#pragma once

#include <nccl.h>

#include <chrono>

#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// Which end of a communicator this is, on which GPU, and how long it waits at most.
struct NcclEnd {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  std::chrono::milliseconds wait_limit{};
};

[[noreturn]] inline void fail(const NcclEnd& end, std::string_view call, std::string_view reason) {
  throw CommunicationError(fmt::format("rank {} of {}: {}: {}", end.rank, end.ranks, call, reason));
}

inline void check_nccl(const NcclEnd& end, std::string_view call, ncclResult_t result) {
  if (result == ncclSuccess) return;
  const std::string_view detail = ncclGetLastError(nullptr);
  fail(end, call, fmt::format("{}{}{}", ncclGetErrorString(result), detail.empty() ? "" : ": ", detail));
}

}  // namespace flashoverlap
