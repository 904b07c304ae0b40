#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/run_watch.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/stream_memory.hpp"
#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// Lets the watch see the runs of a CUDA graph in which NCCL makes all transfers, as nothing else tells of a
/// rank that does not come: a word of host memory holds a number from the first run of the graph to the end
/// of the last. The nodes that write it are next to the runs, but even so each takes the GPU 2 to 5 µs. So
/// the operators of a workspace share them, and there are few: one at the beginning, with another number one
/// after every 16 runs, and one at the end.
class GraphMarks {
 public:
  explicit GraphMarks(Communicator communicator) : communicator_(std::move(communicator)) {}

  /// A run is captured on this stream between the two. By one thread at a time.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

 private:
  void watch();

  Communicator communicator_;
  MappedWords word_{1};
  std::uint32_t number_ = 0;
  int unmarked_runs_ = 0;
  StreamMemoryBatch::LastAside last_;
  CUgraphNode end_ = nullptr;                              // of the graph that is being captured
  std::map<cudaStream_t, std::vector<CUgraphNode>> runs_;  // the last on each stream: what `end_` comes after
  std::optional<WatchedRuns> watched_;
};

}  // namespace flashoverlap
