// src/gemm/sm80/instructions.cuh for the emulator.
#pragma once

#include "cuda/ptx.cuh"
#include "data_type/half.hpp"
#include "flashoverlap/data_type.hpp"
#include "gemm/device/element_access.cuh"
#include "support/emulator/matrices.hpp"

namespace flashoverlap::sm80 {

struct alignas(8) Chunk {
  std::uint32_t words[2];
};

inline testing::emulator::Launch& launch() { return *testing::emulator::current; }

inline std::uint32_t shared_memory() { return testing::emulator::shared_begin; }

inline void copy_async(std::uint32_t to, const void* from, bool present) {
  testing::emulator::copy_async(launch(), to, from, present);
}
inline void copy_commit() { launch().fiber().copies.emplace_back(); }
template <int Pending>
void copy_wait() {
  testing::emulator::copy_wait(launch(), Pending);
}

inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  testing::emulator::load_matrices<false>(launch(), false, to, address);
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  testing::emulator::load_matrices<true>(launch(), false, to, address);
}

inline void store_sums(std::uint32_t to, const float (&sums)[4]) {
  testing::emulator::move_sums(launch(), to, [&](std::byte* at) { std::memcpy(at, sums, sizeof sums); });
}
inline void load_sums(float (&to)[4], std::uint32_t from) {
  testing::emulator::move_sums(launch(), from, [&](const std::byte* at) { std::memcpy(to, at, sizeof to); });
}

struct Pair {
  float x;
  float y;
};

template <float (*ToFloat)(std::uint16_t), std::uint16_t (*FromFloat)(float)>
struct EmulatedArithmetic {
  static void multiply(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t& b0,
                       const std::uint32_t& b1) {
    testing::emulator::multiply(launch(), sum, a, &b0, &b1, ToFloat);
  }
  static std::uint32_t pack(float low, float high) {
    return FromFloat(low) | static_cast<std::uint32_t>(FromFloat(high)) << 16;
  }
  static Pair unpack(std::uint32_t pair) {
    return {ToFloat(static_cast<std::uint16_t>(pair)), ToFloat(static_cast<std::uint16_t>(pair >> 16))};
  }
};

template <DataType type>
struct Arithmetic;
template <>
struct Arithmetic<DataType::bf16> : EmulatedArithmetic<bf16_to_float, float_to_bf16> {};
template <>
struct Arithmetic<DataType::fp16> : EmulatedArithmetic<fp16_to_float, float_to_fp16> {};

inline Chunk load_chunk(const void* from) {
  Chunk chunk{};
  launch().load(&chunk, from, sizeof chunk);
  return chunk;
}
inline void store_chunk(void* to, const Chunk& chunk) { launch().store(to, &chunk, sizeof chunk); }

inline void prefetch(const void*) {}

}  // namespace flashoverlap::sm80
