#pragma once

#include "flashoverlap/data_type.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::sm90 {

/// What the launcher needs to know of a compiled kernel.
struct Kernel {
  const void* function = nullptr;
  int group_rows = 0;  ///< rows of a warpgroup: the height of a box that is stored
  int threads = 0;
  int shared_bytes = 0;
};

/// The kernel of a tile for a data type and a pair of layouts. Compiled for each tile of tiles.inc.
template <int Rows, int Cols, int ClusterRows>
Kernel find_kernel(DataType data_type, OperandLayout a, OperandLayout b);

}  // namespace flashoverlap::sm90
