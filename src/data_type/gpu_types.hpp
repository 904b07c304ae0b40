#pragma once

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

/// Throws `InvalidArgument` for a data type that GPUs do not compute with. Without headers that nvcc cannot
/// compile.
[[noreturn]] void refuse_on_gpus(DataType data_type);

}  // namespace flashoverlap
