// The driver's tensor maps for the emulator: matrices below each other, and how boxes of them are taken.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUtensorMap {
  std::byte* base;
  std::int64_t rows;  ///< of each matrix
  std::int64_t cols;  ///< 16-bit elements
  std::int64_t pitch;
  std::int64_t matrices;
  int box_rows;
};
