// src/gemm/device/element_access.cuh for the emulator.
#pragma once

#include "cuda/ptx.cuh"

namespace flashoverlap {

struct alignas(16) Chunk {
  std::uint32_t words[4];
};

inline Chunk load_chunk(const void* from) {
  Chunk chunk{};
  testing::emulator::current->load(&chunk, from, sizeof chunk);
  return chunk;
}
inline void store_chunk(void* to, const Chunk& chunk) {
  testing::emulator::current->store(to, &chunk, sizeof chunk);
}

inline std::uint16_t load_element(const std::uint16_t* from) {
  std::uint16_t element{};
  testing::emulator::current->load(&element, from, sizeof element);
  return element;
}
inline void store_element(std::uint16_t* to, std::uint16_t element) {
  testing::emulator::current->store(to, &element, sizeof element);
}

}  // namespace flashoverlap
