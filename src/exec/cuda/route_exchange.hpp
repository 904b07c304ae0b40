#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/handles.hpp"
#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// Tells every rank how many rows each rank has for each expert.
class RouteExchange {
 public:
  /// `entries`: numbers of each rank.
  RouteExchange(const Communicator& communicator, std::size_t entries);

  /// Every rank's numbers. Collective; waits on the host, and past the communicator's limit aborts it and
  /// throws `CommunicationError`. A list of another length than `entries` is known to every rank by -1 in its
  /// place.
  std::vector<std::vector<std::int32_t>> gather(std::span<const std::int32_t> own);

 private:
  Communicator communicator_;
  std::size_t entries_;
  MappedWords words_;  // of every rank, then this rank's own
  CudaStream stream_{StreamPriority::high};
};

}  // namespace flashoverlap
