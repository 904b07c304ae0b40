#pragma once

#include "flashoverlap/data_type.hpp"
#include "gemm/exchange/device_arguments.hpp"

namespace flashoverlap::exchange {

inline constexpr int threads = 512;  ///< of a block

/// The kernel for a data type.
const void* find_kernel(DataType data_type);

}  // namespace flashoverlap::exchange
