// src/gemm/device/element_access.cuh for the emulator.
#pragma once

#include "cuda/ptx.cuh"

namespace flashoverlap {

inline std::uint16_t load_element(const std::uint16_t* from) {
  std::uint16_t element{};
  testing::emulator::current->load(&element, from, sizeof element);
  return element;
}
inline void store_element(std::uint16_t* to, std::uint16_t element) {
  testing::emulator::current->store(to, &element, sizeof element);
}

}  // namespace flashoverlap
