#pragma once

#include <cstdint>
#include <random>

namespace flashoverlap {

/// 64 bits that nobody else has drawn.
inline std::uint64_t random_word() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace flashoverlap
