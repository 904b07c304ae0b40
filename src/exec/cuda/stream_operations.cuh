#pragma once

#include "cuda/ptx.cuh"
#include "exec/cuda/stream_operations.hpp"

namespace flashoverlap {

/// Whoever sees the value, on whatever GPU or the host, sees all that this thread has written or seen.
__device__ inline void write_after_all(std::uint32_t* word, std::uint32_t value) {
  __threadfence_system();
  *const_cast<volatile std::uint32_t*>(word) = value;
}

/// By one thread.
__device__ inline void work_off(const StreamOperations& list) {
  if (list.expired != nullptr && read_counter(list.expired) != 0) return;
  const std::uint64_t begin = nanoseconds();
  for (int index = 0; index < list.count; ++index) {
    const StreamOperation& operation = list.operations[index];
    if (operation.waits == 0) {
      write_after_all(operation.word, operation.value);
      continue;
    }
    while (static_cast<std::int32_t>(read_counter(operation.word) - operation.value) < 0) {
      if (nanoseconds() - begin <= list.wait_limit_ns) continue;
      write_after_all(list.expired, 1);
      return;
    }
  }
}

}  // namespace flashoverlap
