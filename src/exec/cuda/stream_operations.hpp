#pragma once

#include <cstdint>

namespace flashoverlap {

/// A write of a word, or a wait until it is at least `value` (counted on from 2^32 - 1 to 0).
struct StreamOperation {
  std::uint32_t* word;
  std::uint32_t value;
  std::uint32_t waits;
};

inline constexpr int most_stream_operations = 128;

/// What one thread does in place of a stream's memory operations, in this order. If it waits longer than the
/// limit it sets `expired` (which is not reset). Where that is set it does nothing more.
struct StreamOperations {
  StreamOperation operations[most_stream_operations];
  int count;
  std::uint32_t* expired;  ///< null where nothing is waited for
  std::uint64_t wait_limit_ns;
};

}  // namespace flashoverlap
