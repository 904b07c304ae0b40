#pragma once

#include "gemm/gemm_memory.hpp"
#include "gemm/sm80/device_arguments.hpp"

/// A plan's memory as the kernels of this family read it. Needs no GPU.
namespace flashoverlap::sm80 {

/// All but the tile list.
void resolve_matrices(const Plan& plan, const GemmMemory& memory, GemmArguments& arguments);

/// Sources are the operand itself (0) and the gathered one (1), which may stand for A or B.
void bind_operand(BufferRole role, const DeviceMatrix& matrix, GemmArguments& arguments);

}  // namespace flashoverlap::sm80
