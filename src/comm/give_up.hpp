/// Giving up on ranks that do not come.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>

#include "comm/run_watch.hpp"
#include "cuda/error.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {

/// Ends what the communicator has under way, with the words of a standard exception.
inline void abort_for(const Communicator& communicator, const std::exception_ptr& why) noexcept {
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& error) {
    communicator.abort(error.what());
  }
}

/// Ends what the communicator has under way, with the same words for those that use it after, and throws.
template <typename Failure>
[[noreturn]] void give_up(const Communicator& communicator, const Failure& failure) {
  communicator.abort(failure.what());
  throw failure;
}

/// The thread that watches the runs of all operators on a communicator, as long as anyone holds it.
std::shared_ptr<RunWatch> run_watch(const Communicator& communicator);

/// Gives up on ranks that do not construct `what` together in time: a first transfer waits on the host for
/// ranks that may have failed.
inline std::unique_ptr<const WatchedRuns> watch_construction(const Communicator& communicator,
                                                             std::string_view what) {
  return std::make_unique<const WatchedRuns>(
      run_watch(communicator), 2 * communicator.options().wait_limit,
      WatchedRuns::Callbacks{.running = [] { return 1; },
                             .find_error = [] {},
                             .expired =
                                 [=] {
                                   return std::make_exception_ptr(CommunicationError(fmt::format(
                                       "rank {} of {}: the ranks have not made {} together in time",
                                       communicator.rank(), communicator.ranks(), what)));
                                 },
                             .give_up = [=](const std::exception_ptr& why) { abort_for(communicator, why); },
                             .release = [] {}});
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
