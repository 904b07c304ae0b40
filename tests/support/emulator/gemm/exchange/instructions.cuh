// src/gemm/exchange/instructions.cuh for the emulator.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/ptx.cuh"

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
inline std::uint16_t load_element(const std::uint16_t* from) {
  std::uint16_t element{};
  launch().load(&element, from, sizeof element);
  return element;
}
inline void store_chunk(void* to, const Chunk& chunk) { launch().store(to, &chunk, sizeof chunk); }
inline void store_element(std::uint16_t* to, std::uint16_t element) {
  launch().store(to, &element, sizeof element);
}

}  // namespace flashoverlap::exchange
