#pragma once

#include "cuda/error.hpp"

/// What the current GPU is.
namespace flashoverlap {

inline int current_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  FLASHOVERLAP_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

/// 10 · major + minor.
inline int current_compute_capability() {
  return 10 * current_attribute(cudaDevAttrComputeCapabilityMajor) +
         current_attribute(cudaDevAttrComputeCapabilityMinor);
}

}  // namespace flashoverlap
