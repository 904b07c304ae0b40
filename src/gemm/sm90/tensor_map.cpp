#include "gemm/sm90/tensor_map.hpp"

#include "cuda/driver.hpp"
#include "data_type/gpu_types.hpp"
#include "plan/box_steps.hpp"

namespace flashoverlap::sm90 {
namespace {

CUtensorMapDataType tensor_type(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DataType::fp16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::fp32: break;
  }
  refuse_on_gpus(data_type);
}

}  // namespace

CUtensorMap tensor_map(DataType data_type, const DeviceMatrix& matrix, int box_rows, int matrices) {
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  CUtensorMap map{};
  const auto rows = static_cast<cuuint64_t>(matrix.rows / matrices);
  const auto pitch = static_cast<cuuint64_t>(matrix.pitch) * 2;
  const std::array<cuuint64_t, 3> extents{static_cast<cuuint64_t>(matrix.cols), rows,
                                          static_cast<cuuint64_t>(matrices)};
  const std::array<cuuint64_t, 2> pitches{pitch, rows * pitch};
  const std::array<cuuint32_t, 3> box{step_cols, static_cast<cuuint32_t>(box_rows), 1};
  const std::array<cuuint32_t, 3> steps{1, 1, 1};
  const CUresult result =
      encode(&map, tensor_type(data_type), matrices > 1 ? 3 : 2, matrix.base, extents.data(), pitches.data(),
             box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw CudaError(fmt::format("cuTensorMapEncodeTiled: {} for a matrix of {} x {} (pitch {}) at {}",
                                driver_error(result), matrix.rows, matrix.cols, matrix.pitch, matrix.base));
  }
  return map;
}

}  // namespace flashoverlap::sm90
