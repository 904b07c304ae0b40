#pragma once

#include "epilogue/result_layout.hpp"
#include "flashoverlap/result_reader.hpp"

namespace flashoverlap {

/// Those that results of this layout may need: see `load_kernels`.
cudaError_t load_rms_norm(const ResultLayout& layout, DataType data_type);
cudaError_t load_unreorder(const ResultLayout& layout, DataType data_type);

/// Asynchronous; for results of at least one element. See `ResultReader`. may_begin_early: before
/// the kernel before it on the stream has ended, which code of sm_90 awaits before it reads or writes
/// anything.
cudaError_t launch_rms_norm(const ResultLayout& layout, DataType data_type, const void* out,
                            const RmsNorm& norm, void* normalized, bool may_begin_early, Stream stream);

/// The same for a result that is reordered, or partial, into a row-major matrix.
cudaError_t launch_unreorder(const ResultLayout& layout, DataType data_type, const void* out, void* result,
                             Stream stream);

}  // namespace flashoverlap
