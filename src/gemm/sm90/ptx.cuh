#pragma once

#include <cuda.h>

#include <cstdint>

/// Hopper's PTX instructions that CUDA C++ has no word for, one line each under a name of its own (PTX
/// ISA 9.0).
namespace flashoverlap::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The same number, but nothing that the compiler knows how to compute.
__device__ inline std::uint32_t opaque(std::uint32_t number) {
  asm volatile("mov.b32 %0, %0;" : "+r"(number));
  return number;
}

__device__ inline void store_shared(std::uint32_t address, std::uint64_t value) {
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(address), "l"(value) : "memory");
}

__device__ inline std::uint64_t load_shared_64(std::uint32_t address) {
  std::uint64_t value;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline std::uint32_t load_shared_32(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline uint4 load_shared_128(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

/// An ordinary store.
template <typename Value>
__device__ void store_global(Value* to, const Value& value) {
  *to = value;
}

/// Sums that a lane leaves for one of another block. They say themselves whether they are there: where none
/// has been left there are bits that no arithmetic yields, so nothing else needs to be ordered.
inline constexpr std::uint32_t nothing_left = 0xFFFFFFFF;

__device__ inline void leave_sums(float4* to, const float4& sums) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(sums.x), "f"(sums.y),
               "f"(sums.z), "f"(sums.w)
               : "memory");
}

__device__ inline float4 look_at_sums(const float4* from) {
  float4 sums;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sums.x), "=f"(sums.y), "=f"(sums.z), "=f"(sums.w)
               : "l"(from)
               : "memory");
  return sums;
}

/// One thread of a converged warp, which the compiler then knows to be one.
__device__ inline bool elect() {
  std::uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

/// What the first thread of a warp has, which the compiler then knows to be the same for all.
__device__ inline std::int32_t uniform(std::int32_t value) { return __shfl_sync(~0u, value, 0); }

// Barriers in shared memory that count arrivals and bytes.

__device__ inline void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;"); }

__device__ inline void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Where another block of the cluster has what is at `address` in this one.
__device__ inline std::uint32_t address_in(std::uint32_t block, std::uint32_t address) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

// Stores to another block of the cluster, which one of its barriers counts in bytes.

__device__ inline void send(std::uint32_t to, std::uint32_t word, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
               "r"(word), "r"(barrier)
               : "memory");
}

__device__ inline void send(std::uint32_t to, const float4& sums, std::uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          to),
      "f"(sums.x), "f"(sums.y), "f"(sums.z), "f"(sums.w), "r"(barrier)
      : "memory");
}

/// Arrives at the same barrier of another block of the cluster.
__device__ inline void barrier_arrive_at(std::uint32_t barrier, std::uint32_t block) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(block, barrier)) : "memory");
}

__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The tensor memory accelerator: boxes of matrices between global and shared memory.

__device__ inline void tma_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// For what is loaded once: the L2 cache drops it before all else.
__device__ inline std::uint64_t drop_from_l2() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline void tma_load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                                std::uint64_t policy, int col, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ inline void tma_load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier, int col,
                                int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(barrier)
      : "memory");
}

/// From one of several matrices.
__device__ inline void tma_load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier, int col,
                                int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(matrix), "r"(barrier)
      : "memory");
}

/// To the same place in every block of the cluster whose bit is set in `blocks`, counted at each one's
/// barrier.
__device__ inline void tma_load_multicast(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                                          std::uint16_t blocks, int col, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

__device__ inline void tma_load_multicast(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                                          std::uint64_t policy, std::uint16_t blocks, int col, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(barrier), "h"(blocks), "l"(policy)
      : "memory");
}

__device__ inline void tma_load_multicast(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                                          std::uint16_t blocks, int col, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(matrix), "r"(barrier), "h"(blocks)
      : "memory");
}

__device__ inline void tma_store(const CUtensorMap* map, std::uint32_t from, int col, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(col), "r"(row), "r"(from)
               : "memory");
}

__device__ inline void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Shared memory of all but this thread's last `Pending` groups of stores may be reused; nothing is said
/// about what others see.
template <int Pending>
__device__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// All but this thread's last `Pending` groups of stores are complete and visible to it, so a release by it
/// covers them.
template <int Pending>
__device__ void tma_store_wait_visible() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Orders this thread's ordinary writes to shared memory before what the TMA or the tensor cores read next.
__device__ inline void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Orders what this thread has seen in global memory before what the TMA reads there next.
__device__ inline void fence_global_for_async() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Warpgroup matrix instructions.

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// At most `Pending` of this warpgroup's committed groups are still running.
template <int Pending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements from registers to the rows whose addresses the lanes give, 8 lanes
/// a matrix.
__device__ inline void store_matrices(std::uint32_t address, std::uint32_t m0, std::uint32_t m1,
                                      std::uint32_t m2, std::uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m0),
               "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

/// The inverse: from those rows to registers.
__device__ inline uint4 load_matrices(std::uint32_t address) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(address)
               : "memory");
  return m;
}

template <int Registers>
__device__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Blocks, clusters and grids.

/// The kernels before this one on the stream are over, and what they wrote is seen, where the launch let this
/// one begin before.
__device__ inline void await_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// When every block of this kernel has said so the next one may begin, if its launch allows that.
__device__ inline void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;"); }

/// Barrier `id` (1 … 15) among `threads` threads of the block.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Orders nothing but barriers, where `barrier_init_fence` came before it.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

}  // namespace flashoverlap::sm90
