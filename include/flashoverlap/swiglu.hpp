/// The activation between the projections of a gated feed-forward, on the current GPU, in one pass.
///
/// Matrices are row-major and dense, in GPU memory that the caller owns and keeps until the stream has
/// completed the work, and do not overlap. Calls are asynchronous, allocate nothing, may come from several
/// threads and may be captured into a CUDA graph. They are fastest where every pointer is aligned to 16 bytes
/// and `cols` is a multiple of 8. Computed in fp32, and rounded once. They throw `InvalidArgument` for fp32,
/// and for null pointers and negative sizes.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/stream.hpp"

namespace flashoverlap {

/// hidden[i,j] = silu(gate_up[i,j]) · gate_up[i,cols + j], where silu(x) = x / (1 + exp(-x)).
/// hidden: of this shape, [rows, cols]; gate_up: [rows, 2 · cols], the gate's columns first.
void swiglu(const void* gate_up, void* hidden, const Shape& shape, DataType data_type, Stream stream);

/// The gradient of gate_up, [rows, 2 · cols], from that of hidden, [rows, cols].
void swiglu_gradient(const void* of_hidden, const void* gate_up, void* of_gate_up, const Shape& shape,
                     DataType data_type, Stream stream);

}  // namespace flashoverlap
