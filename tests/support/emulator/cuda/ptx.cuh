// src/cuda/ptx.cuh for the emulator, and the words of CUDA C++ that kernels use.
#pragma once

#include <cstdint>

#include "support/emulator/launch.hpp"

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx (::flashoverlap::testing::emulator::thread_index)
#define blockIdx (::flashoverlap::testing::emulator::block_index)
#define gridDim (::flashoverlap::testing::emulator::grid_size)

namespace flashoverlap {

inline void raise_everywhere(std::uint32_t* counter) { testing::emulator::current->raise(counter); }
inline void raise_fenced(std::uint32_t* counter) { testing::emulator::current->raise_fenced(counter); }
inline void raise_on_gpu(std::uint32_t* counter) { testing::emulator::current->raise(counter); }

inline std::uint32_t count_on_gpu(std::uint32_t* counter, std::uint32_t count = 1) {
  testing::emulator::current->fence();
  testing::emulator::current->pause();
  const std::uint32_t before = *counter;
  *counter += count;
  return before;
}
inline std::uint32_t count_everywhere(std::uint32_t* counter) { return count_on_gpu(counter); }

inline std::uint32_t read_counter(const std::uint32_t* counter) {
  testing::emulator::current->poll(counter);
  return *counter;
}

inline std::uint64_t nanoseconds() { return testing::emulator::current->now(); }

inline void __nanosleep(unsigned) {}
inline void __threadfence_system() { testing::emulator::current->fence(); }
inline void __syncthreads() { testing::emulator::current->synchronize_block(); }
inline void __syncwarp() { testing::emulator::current->synchronize_warp(); }

template <typename Value>
Value __shfl_sync(unsigned, Value value, int lane) {
  return static_cast<Value>(testing::emulator::current->shuffle(value, lane));
}
template <typename Value>
Value __shfl_xor_sync(unsigned mask, Value value, int bits) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x) % 32 ^ bits);
}

inline int __all_sync(unsigned mask, int predicate) {
  for (int bits = 1; bits < 32; bits *= 2) predicate &= __shfl_xor_sync(mask, predicate, bits);
  return predicate;
}

inline std::uint32_t atomicAdd(std::uint32_t* to, std::uint32_t value) {
  const std::uint32_t before = *to;
  *to += value;
  return before;
}
inline std::uint32_t atomicExch(std::uint32_t* to, std::uint32_t value) {
  const std::uint32_t before = *to;
  *to = value;
  return before;
}

using std::max;
using std::min;

}  // namespace flashoverlap
