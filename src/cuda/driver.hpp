#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>
#include <string_view>

#include "cuda/error.hpp"

namespace flashoverlap {

/// A function of the driver as it was in CUDA version `version` (12000 is 12.0), found at run time so that
/// the library does not link against the driver.
template <typename Function>
Function driver_function(const char* function_name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FLASHOVERLAP_CUDA(
      cudaGetDriverEntryPointByVersion(function_name, &function, version, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess)
    throw CudaError(fmt::format("{}: the driver does not have it", function_name));
  return reinterpret_cast<Function>(function);
}

inline std::string driver_error(CUresult result) {
  static const auto get_string = driver_function<PFN_cuGetErrorString_v6000>("cuGetErrorString", 6000);
  const char* reason = nullptr;
  get_string(result, &reason);
  return reason == nullptr ? fmt::format("error {}", static_cast<int>(result)) : reason;
}

/// Throws `CudaError` unless the call of the driver has succeeded.
inline void check_driver(std::string_view function, CUresult result) {
  if (result != CUDA_SUCCESS) throw CudaError(fmt::format("{}: {}", function, driver_error(result)));
}

}  // namespace flashoverlap
