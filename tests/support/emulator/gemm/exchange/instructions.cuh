// src/gemm/exchange/instructions.cuh for the emulator.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/ptx.cuh"
#include "gemm/device/element_access.cuh"

namespace flashoverlap::exchange {

struct alignas(16) Chunk {
  std::uint32_t words[4];
};

inline testing::emulator::Launch& launch() { return *testing::emulator::current; }

inline Chunk load_chunk(const void* from) {
  Chunk chunk{};
  launch().load(&chunk, from, sizeof chunk);
  return chunk;
}
inline void store_chunk(void* to, const Chunk& chunk) { launch().store(to, &chunk, sizeof chunk); }

}  // namespace flashoverlap::exchange
