/// Reading a result on the host, whether it is natural or `tiled`. On GPUs: result_reader.hpp.
#pragma once

#include <span>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The result as an ordinary output.rows × output.cols matrix. `out` is the plan's buffer `out`. Throws
/// `InvalidArgument` if its data type or shape is another one.
Matrix natural_result(const Output& output, const Matrix& out);

/// RMSNorm of each row of the result, in natural order: y[i,j] = x[i,j] / sqrt(mean_j(x[i,j]²) + eps) ·
/// weight[j], where x = result + residual; computed in fp32 and rounded once. `weight` has output.cols
/// elements. `residual`, if any, and `sum`, if any, which receives x, are output.rows × output.cols matrices
/// of the result's data type. Throws `InvalidArgument` for other shapes and a negative eps.
Matrix rms_norm(const Output& output, const Matrix& out, std::span<const float> weight, float eps,
                const Matrix* residual = nullptr, Matrix* sum = nullptr);

}  // namespace flashoverlap
