#pragma once

#include "flashoverlap/data_type.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::sm80 {

/// What the launcher needs to know of a compiled kernel.
struct Kernel {
  const void* function = nullptr;
  int threads = 0;
  int shared_bytes = 0;
};

/// The kernel of a tile for a data type and a pair of layouts. Compiled for each line of tiles.inc.
template <int Rows, int Cols, int Depth, int Stages>
Kernel find_kernel(DataType data_type, OperandLayout a, OperandLayout b);

}  // namespace flashoverlap::sm80
