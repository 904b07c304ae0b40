#pragma once

#include "flashoverlap/problem.hpp"
#include "gemm/kernel_choice.hpp"

namespace flashoverlap::sm90 {

/// What the launcher needs to know of a compiled kernel.
struct Kernel {
  const void* function = nullptr;
  int group_rows = 0;  ///< rows of a warpgroup: the height of a box that is stored
  int threads = 0;
  int shared_bytes = 0;
  int depth = 0;  ///< columns of k that are multiplied at a time
};

/// Each defined in the file of its instance: sm90_ROWSxCOLS_CLUSTER.cu.
Kernel kernel_128x256_1(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x224_1(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x208_1(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x192_2(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x176_2(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x160_2(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x128_2(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x112_1(DataType data_type, OperandLayout a, OperandLayout b);
Kernel kernel_128x96_1(DataType data_type, OperandLayout a, OperandLayout b);

}  // namespace flashoverlap::sm90
