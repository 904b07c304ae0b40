#pragma once

#include <cuda.h>

#include "gemm/gemm_memory.hpp"

namespace flashoverlap::sm90 {

/// Boxes of `box_rows` rows × 128 bytes of a row-major matrix of 16-bit elements, swizzled by 128 bytes; or
/// of one of several such matrices below each other, so that none reaches into the next.
CUtensorMap tensor_map(DataType data_type, const DeviceMatrix& matrix, int box_rows, int matrices = 1);

}  // namespace flashoverlap::sm90
