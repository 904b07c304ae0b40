#include "flashoverlap/result_reader.hpp"

#include <fmt/format.h>

#include "cuda/copy_rows.hpp"
#include "cuda/device_array.hpp"
#include "cuda/properties.hpp"
#include "data_type/pitch.hpp"
#include "epilogue/result_kernels.hpp"
#include "epilogue/row_pieces.hpp"

namespace flashoverlap {

constexpr int hopper = 90;  // newer GPUs run code of sm_80, which cannot await the kernel before

/// Otherwise the rows of the result lie there as they are.
static bool must_unreorder(const ResultLayout& layout) {
  return layout.first_row != nullptr || layout.partials > 1;
}

struct ResultReader::State {
  DataType data_type;
  DeviceArray<std::int32_t> first_row;
  bool may_begin_early;
  ResultLayout layout;  // without rows where the result is empty: nothing is launched
};

ResultReader::ResultReader(const Plan& plan, std::int64_t out_pitch) {
  const Output& output = plan.output;
  const Reorder& reorder = output.reorder;
  const Buffer& out = plan.buffer(BufferRole::out);
  const DataType data_type = plan.problem.data_type;
  require(data_type != DataType::fp32, "data_type", name(data_type), "must be bf16 or fp16 on a GPU");
  require_readable(output, {out.rows, out.cols});
  const bool natural = reorder.first_row.empty();
  const std::int64_t pitch = checked_pitch("out_pitch", out_pitch, out.cols);
  require(natural || pitch == out.cols, "out_pitch", out_pitch, "must be 0 where the result is tiled");
  state_ = std::make_unique<State>(
      State{data_type,
            DeviceArray<std::int32_t>(std::span<const std::int32_t>(reorder.first_row)),
            current_compute_capability() == hopper,
            {}});
  if (output.rows == 0 || output.cols == 0) return;
  const auto rows = static_cast<std::int32_t>(output.rows);
  const auto cols = static_cast<std::int32_t>(output.cols);
  const Divisor block_cols(natural ? cols : reorder.block_cols);
  state_->layout = {.rows = rows,
                    .cols = cols,
                    .pitch = pitch,
                    .first_row = state_->first_row.data(),
                    .column_blocks = block_cols.quotient(cols - 1) + 1,
                    .block_rows = Divisor(natural ? rows : reorder.block_rows),
                    .block_cols = block_cols,
                    .partials = output.partials,
                    .partial_stride = output.partial_stride * pitch};
  FLASHOVERLAP_CUDA(load_rms_norm(state_->layout, data_type));
  if (must_unreorder(state_->layout)) FLASHOVERLAP_CUDA(load_unreorder(state_->layout, data_type));
}

ResultReader::~ResultReader() = default;
ResultReader::ResultReader(ResultReader&&) noexcept = default;
ResultReader& ResultReader::operator=(ResultReader&&) noexcept = default;

void ResultReader::rms_norm(const void* out, const RmsNorm& norm, void* normalized, Stream stream) const {
  require(norm.weight != nullptr, "weight", "null", "must be given");
  require(norm.eps >= 0, "eps", norm.eps, "must not be negative");
  if (state_->layout.rows == 0) return;
  require(out != nullptr, "out", "null", "must be GPU memory");
  require(normalized != nullptr, "normalized", "null", "must be GPU memory");
  FLASHOVERLAP_CUDA(launch_rms_norm(state_->layout, state_->data_type, out, norm, normalized,
                                    state_->may_begin_early, stream));
}

void ResultReader::natural(const void* out, void* result, Stream stream) const {
  const ResultLayout& layout = state_->layout;
  if (layout.rows == 0) return;
  require(out != nullptr, "out", "null", "must be GPU memory");
  require(result != nullptr, "result", "null", "must be GPU memory");
  if (must_unreorder(layout)) {
    FLASHOVERLAP_CUDA(launch_unreorder(layout, state_->data_type, out, result, stream));
  } else {
    const auto element = static_cast<std::size_t>(size_of(state_->data_type));
    const std::size_t row_bytes = static_cast<std::size_t>(layout.cols) * element;
    copy_rows(result, row_bytes, out, static_cast<std::size_t>(layout.pitch) * element, row_bytes,
              static_cast<std::size_t>(layout.rows), stream);
  }
}

}  // namespace flashoverlap
