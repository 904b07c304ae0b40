#pragma once

#include <cstdint>

#include "cuda/elements.cuh"
#include "cuda/ptx.cuh"
#include "gemm/device/element_access.cuh"

/// Ampere's PTX instructions that CUDA C++ has no word for, one line each under a name of its own (PTX
/// ISA 9.0), and all else that the kernel takes from the GPU besides CUDA C++'s own words. The tests have
/// another header of this name, by which the host runs the same kernel.
namespace flashoverlap::sm80 {

/// 4 elements of 16 bits: what is loaded from C and stored to it at a time.
struct alignas(8) Chunk {
  std::uint32_t words[2];
};

/// Where the block's shared memory begins, a multiple of 128.
__device__ inline std::uint32_t shared_memory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

/// 16 bytes from global to shared memory while the thread goes on; zeros where they are not `present`, and
/// then nothing is read.
__device__ inline void copy_async(std::uint32_t to, const void* from, bool present) {
  asm volatile(
      "{\n.reg .pred absent;\n"
      "setp.eq.u32 absent, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<std::uint32_t>(present))
      : "memory");
}

/// What this thread has copied since the last commit is a group.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// All but this thread's last `Pending` groups have arrived.
template <int Pending>
__device__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements from the rows whose addresses the lanes give, 8 lanes a matrix, to
/// registers: two neighbouring elements of a row for each lane.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// The same of the transposed matrices.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// To shared memory and from there.
__device__ inline void store_sums(std::uint32_t to, const float (&sums)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(sums[0]), "f"(sums[1]), "f"(sums[2]),
               "f"(sums[3])
               : "memory");
}
__device__ inline void load_sums(float (&to)[4], std::uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}

/// sum[16,8] += a[16,16] · b[16,8] by a warp, and values as a pair of elements.
template <DataType type>
struct Arithmetic;

template <>
struct Arithmetic<DataType::bf16> : ElementPair<__nv_bfloat16> {
  static __device__ void multiply(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t& b0,
                                  const std::uint32_t& b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Arithmetic<DataType::fp16> : ElementPair<__half> {
  static __device__ void multiply(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t& b0,
                                  const std::uint32_t& b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

/// Past the L1 cache, as peers write what is loaded.
__device__ inline Chunk load_chunk(const void* from) {
  const uint2 chunk = __ldcg(static_cast<const uint2*>(from));
  return {chunk.x, chunk.y};
}

__device__ inline void store_chunk(void* to, const Chunk& chunk) {
  __builtin_assume(__isGlobal(to));
  *static_cast<Chunk*>(to) = chunk;
}

/// So that what is read soon is in the L1 cache.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

}  // namespace flashoverlap::sm80
