#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "comm/run_watch.hpp"
#include "cuda/handles.hpp"
#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// Lets the watch see the runs of a CUDA graph in which NCCL makes all transfers, as nothing else tells of a
/// rank that does not come: a word of host memory holds a number from the first run of a stream to the end of
/// the last, another one after every 16 runs. The nodes that write it are part of the stream, as a node next
/// to it takes every run of the graph 1 to 3 µs. The operators of a workspace share them.
class GraphMarks {
 public:
  explicit GraphMarks(Communicator communicator) : communicator_(std::move(communicator)) {}

  /// A run is captured on this stream between the two. By one thread at a time.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

 private:
  /// What one stream has captured.
  struct Runs {
    std::size_t word = 0;
    int unmarked = 0;
    CUgraphNode end = nullptr;
  };

  void watch();
  std::uint32_t running() const;

  static constexpr std::size_t most_streams = 8;  // of a capture; more share the last word

  Communicator communicator_;
  MappedWords words_{most_streams};
  std::uint32_t number_ = 0;
  cuuint64_t capture_ = 0;
  std::map<cudaStream_t, Runs> runs_;  // of this capture
  std::optional<WatchedRuns> watched_;
};

}  // namespace flashoverlap
