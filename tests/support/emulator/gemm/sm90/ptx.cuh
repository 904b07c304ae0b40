// src/gemm/sm90/ptx.cuh for the emulator, and what else of CUDA C++ the kernels of this family use.
#pragma once

#include <bit>

#include "cuda/ptx.cuh"
#include "support/emulator/matrices.hpp"
#include "support/emulator/tensor_memory.hpp"

#define __shared__

namespace flashoverlap::sm90 {

namespace emulator = testing::emulator;

inline emulator::Launch& launch() { return *emulator::current; }

struct alignas(16) float4 {
  float x;
  float y;
  float z;
  float w;
};

struct alignas(16) uint4 {
  std::uint32_t x;
  std::uint32_t y;
  std::uint32_t z;
  std::uint32_t w;
};

inline std::uint32_t shared_address(const void*) { return emulator::shared_begin; }
inline std::uint32_t opaque(std::uint32_t number) { return number; }

inline void store_shared(std::uint32_t address, std::uint64_t value) {
  std::memcpy(launch().shared_at(address, sizeof value), &value, sizeof value);
}
template <typename Value>
Value load_shared(std::uint32_t address) {
  Value value{};
  std::memcpy(&value, launch().shared_at(address, sizeof value), sizeof value);
  return value;
}
inline std::uint32_t load_shared_32(std::uint32_t address) { return load_shared<std::uint32_t>(address); }
inline std::uint64_t load_shared_64(std::uint32_t address) { return load_shared<std::uint64_t>(address); }
inline uint4 load_shared_128(std::uint32_t address) { return load_shared<uint4>(address); }

template <typename Value>
void store_global(Value* to, const Value& value) {
  launch().store(to, &value, sizeof value);
}
template <typename Value>
Value __ldcg(const Value* from) {
  Value value{};
  launch().load(&value, from, sizeof value);
  return value;
}

inline constexpr std::uint32_t nothing_left = 0xFFFFFFFF;

inline void leave_sums(float4* to, const float4& sums) { launch().store_at_once(to, &sums, sizeof sums); }
inline float4 look_at_sums(const float4* from) {
  launch().pause();
  float4 sums{};
  launch().load(&sums, from, sizeof sums);
  return sums;
}

inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __uint_as_float(std::uint32_t value) { return std::bit_cast<float>(value); }

/// One that is not the first, and always the same.
inline bool elect() {
  launch().meet();
  return threadIdx.x % emulator::lanes == 7;
}
inline std::int32_t uniform(std::int32_t value) { return __shfl_sync(~0u, value, 0); }

inline void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  emulator::barrier_init(launch(), barrier, arrivals);
}
inline void barrier_init_fence() {}
inline void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  emulator::barrier_arrive(launch(), launch().block(), barrier, bytes);
}
inline void barrier_arrive(std::uint32_t barrier) {
  emulator::barrier_arrive(launch(), launch().block(), barrier);
}
inline void barrier_arrive_at(std::uint32_t barrier, std::uint32_t block) {
  emulator::barrier_arrive(launch(), launch().block(launch().block().first_of_cluster + block), barrier);
}
inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  emulator::barrier_wait(launch(), barrier, parity);
}

inline std::uint32_t address_in(std::uint32_t block, std::uint32_t address) {
  return emulator::address_in(block, address);
}
inline void send(std::uint32_t to, std::uint32_t word, std::uint32_t barrier) {
  emulator::send(launch(), to, &word, sizeof word, barrier);
}
inline void send(std::uint32_t to, const float4& sums, std::uint32_t barrier) {
  emulator::send(launch(), to, &sums, sizeof sums, barrier);
}

inline void tma_prefetch(const CUtensorMap*) {}
inline void tma_load_multicast(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                               std::uint16_t blocks, int col, int row, int matrix = 0) {
  emulator::tma_load(launch(), to, *map, barrier, blocks, {col, row, matrix});
}
inline void tma_load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier, int col, int row,
                     int matrix = 0) {
  const auto own = static_cast<unsigned>(launch().place().block - launch().block().first_of_cluster);
  emulator::tma_load(launch(), to, *map, barrier, 1U << own, {col, row, matrix});
}
inline void tma_load_multicast(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                               std::uint64_t /*policy*/, std::uint16_t blocks, int col, int row) {
  tma_load_multicast(to, map, barrier, blocks, col, row);
}
inline std::uint64_t drop_from_l2() { return 1; }
inline void tma_load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                     std::uint64_t /*policy*/, int col, int row) {
  tma_load(to, map, barrier, col, row);
}
inline void tma_store(const CUtensorMap* map, std::uint32_t from, int col, int row) {
  emulator::tma_store(launch(), *map, from, {col, row, 0});
}
inline void tma_store_commit() { emulator::tma_store_commit(launch()); }
template <int Pending>
void tma_store_wait_read() {
  emulator::tma_store_wait_read(launch(), Pending);
}
template <int Pending>
void tma_store_wait_visible() {
  emulator::tma_store_wait_visible(launch(), Pending);
}

inline void fence_shared_for_async() { emulator::fence_shared_for_async(launch()); }
inline void fence_global_for_async() { launch().fiber().has_polled = false; }

inline void store_matrices(std::uint32_t address, std::uint32_t m0, std::uint32_t m1, std::uint32_t m2,
                           std::uint32_t m3) {
  emulator::store_matrices(launch(), {m0, m1, m2, m3}, address);
}
inline uint4 load_matrices(std::uint32_t address) {
  std::uint32_t words[4];
  emulator::load_matrices<false>(launch(), true, words, address);
  const volatile std::uint32_t* loaded = words;
  return {loaded[0], loaded[1], loaded[2], loaded[3]};
}

template <int Registers>
void give_up_registers() {}
template <int Registers>
void take_registers() {}

inline void await_kernels_before() {}
inline void let_next_kernel_begin() {}

inline void named_barrier(int id, int threads) {
  launch().synchronize(launch().block().barriers[id], threads);
}
inline void cluster_arrive() { emulator::cluster_arrive(launch()); }
inline void cluster_wait() { emulator::cluster_wait(launch()); }

}  // namespace flashoverlap::sm90
