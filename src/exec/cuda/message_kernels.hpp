#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "exec/cuda/plan_needs.hpp"
#include "exec/cuda/stream_operations.hpp"
#include "flashoverlap/plan.hpp"

/// What messages do on multiprocessors.
namespace flashoverlap {

inline constexpr int most_raises = 8;

/// Counters of any rank, each to be raised by one.
struct RaisedCounters {
  std::uint32_t* counters[most_raises];
  int count;
};

inline constexpr int most_targets = 8;

/// Where a rectangle is stored.
struct StoredTarget {
  std::byte* peer;      ///< a peer's buffer, or null:
  BufferRole to;        ///< then a buffer of this rank, which may move between launches
  std::int64_t offset;  ///< bytes
};

/// A rectangle that is stored to memory of any ranks. Addresses and bytes are multiples of `stored_bytes`.
struct StoredRectangle {
  BufferRole from;  ///< buffer of this rank
  std::int64_t from_offset;
  std::int64_t from_pitch;  ///< bytes from row to row, here
  std::int64_t to_pitch;    ///< and there
  std::int64_t row_bytes;
  std::int64_t rows;
  int target_count;
  StoredTarget targets[most_targets];
  RaisedCounters raises;  ///< once it is visible, and all that is before it in the list
};

inline constexpr int most_waits = 8;

/// A counter of this rank that must be reached before anything is stored.
struct AwaitedCounter {
  std::uint32_t* counter;
  std::uint32_t target;
  std::uint32_t reset;  ///< whether it is then set to zero, before anything is raised
};

/// What one kernel stores. A block whose wait lasts longer than the limit sets `expired` (which is not reset)
/// and stores nothing.
struct StoreList {
  const StoredRectangle* rectangles;
  std::uint32_t* blocks_done;  ///< with each rectangle; zero between launches
  std::uint32_t* expired;
  int count;
  bool raise;
  std::array<std::byte*, buffer_count> own;
  std::array<AwaitedCounter, most_waits> waits;
  int wait_count;
  std::uint64_t wait_limit_ns;
};
inline constexpr int most_rectangles = 4096;  ///< of one list

/// See `load_kernels`.
cudaError_t load_message_kernels();

/// For counters that other ranks raise too. What the stream did before is visible to whoever sees the raises.
cudaError_t raise_counters(const RaisedCounters& raised, cudaStream_t stream);

/// Works off the list by `blocks` thread blocks without a pause between rectangles, and raises in the order
/// of the list.
cudaError_t store_all(const StoreList& list, int blocks, cudaStream_t stream);

cudaError_t operate(const StreamOperations& list, cudaStream_t stream);
/// The same as a node of a graph that is after no other.
cudaError_t add_operations(const StreamOperations& list, cudaGraph_t graph);

}  // namespace flashoverlap
