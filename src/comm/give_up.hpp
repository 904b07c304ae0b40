/// Giving up on ranks that do not come.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "cuda/error.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {

/// Ends what the communicator has under way, with the same words for those that use it after, and throws.
template <typename Failure>
[[noreturn]] void give_up(const Communicator& communicator, const Failure& failure) {
  communicator.abort(failure.what());
  throw failure;
}

/// Waits on the host for a stream that other ranks may hold up. Past the limit the communicator is aborted
/// and `CommunicationError` thrown: "rank 0 of 2: `failure` within 30000 ms".
inline void await_stream(cudaStream_t stream, const Communicator& communicator,
                         std::chrono::milliseconds limit, std::string_view failure) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!is_over(cudaStreamQuery(stream), "cudaStreamQuery")) {
    communicator.throw_if_failed();
    if (std::chrono::steady_clock::now() > deadline) {
      give_up(communicator,
              CommunicationError(fmt::format("rank {} of {}: {} within {} ms", communicator.rank(),
                                             communicator.ranks(), failure, limit.count())));
    }
    std::this_thread::yield();
  }
}

}  // namespace flashoverlap
