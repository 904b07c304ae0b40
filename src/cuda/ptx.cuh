#pragma once

#include <cstdint>

/// PTX instructions that every GPU since sm_70 has and CUDA C++ has no word for, one line each under a name
/// of its own (PTX ISA 9.0).
namespace flashoverlap {

/// Raises a counter. Whoever sees that, on whatever GPU, sees all that this thread has written or seen.
__device__ inline void raise_everywhere(std::uint32_t* counter) {
  asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/// The same after a fence of this thread: whoever sees the raise sees all that came before the fence.
__device__ inline void raise_fenced(std::uint32_t* counter) {
  asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/// As `raise_everywhere`, for counters and data in this GPU's memory. What has reached its L2 cache is seen
/// by its kernels, stream memory operations and copy engines and by peers that load it; the fence for that is
/// three times faster.
__device__ inline void raise_on_gpu(std::uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/// As raises do, and returns the value before: who sees others' counts sees what they have written.
__device__ inline std::uint32_t count_everywhere(std::uint32_t* counter) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

/// For counts of one GPU's threads. The last of them may raise a counter everywhere: what they have written,
/// to whatever GPU, is then seen with its raise.
__device__ inline std::uint32_t count_on_gpu(std::uint32_t* counter, std::uint32_t count = 1) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count)
               : "memory");
  return before;
}

__device__ inline std::uint32_t read_counter(const std::uint32_t* counter) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

}  // namespace flashoverlap
