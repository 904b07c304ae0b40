#pragma once

#include "flashoverlap/data_type.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::sm90 {

/// What the launcher needs to know of a compiled kernel.
struct Kernel {
  const void* function = nullptr;
  int stored_rows = 0;  ///< by one TMA store
  int threads = 0;
  int shared_bytes = 0;
};

/// How operands lie in memory.
struct Layouts {
  OperandLayout a = OperandLayout::k_contiguous;
  OperandLayout b = OperandLayout::k_contiguous;
  bool b_by_expert = false;  ///< then k is contiguous in A, and B's rows are
};

/// The kernel of a tile for a data type and layouts. Compiled for each tile of tiles.inc.
template <int Rows, int Cols, int ClusterRows>
Kernel find_kernel(DataType data_type, const Layouts& layouts);

}  // namespace flashoverlap::sm90
