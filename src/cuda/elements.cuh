#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "data_type/gpu_types.hpp"

/// The data types as CUDA C++ knows them. What is not listed here does not compile as an element of a kernel.
namespace flashoverlap {

/// Two neighbouring elements in 32 bits, and their values.
template <typename Element>
struct ElementPair;

template <>
struct ElementPair<__nv_bfloat16> {
  static __device__ std::uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  static __device__ float2 unpack(std::uint32_t pair) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  }
};

template <>
struct ElementPair<__half> {
  static __device__ std::uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  static __device__ float2 unpack(std::uint32_t pair) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
};

/// visit.template operator()<Element>() with the element of a data type. Throws `InvalidArgument` for one
/// that only the host computes with.
template <typename Visit>
decltype(auto) with_element(DataType data_type, Visit&& visit) {
  switch (data_type) {
    case DataType::bf16: return visit.template operator()<__nv_bfloat16>();
    case DataType::fp16: return visit.template operator()<__half>();
    case DataType::fp32: break;
  }
  refuse_on_gpus(data_type);
}

}  // namespace flashoverlap
