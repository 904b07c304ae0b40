// src/cuda/elements.cuh for the emulator.
#pragma once

#include <cstdint>

#include "data_type/gpu_types.hpp"
#include "data_type/half.hpp"

namespace flashoverlap {

struct float2 {
  float x;
  float y;
};

template <float (*ToFloat)(std::uint16_t), std::uint16_t (*FromFloat)(float)>
struct EmulatedElement {
  static std::uint16_t from_float(float value) { return FromFloat(value); }
  static float to_float(std::uint16_t value) { return ToFloat(value); }
  explicit operator float() const { return ToFloat(bits); }

  std::uint16_t bits;
};

using __nv_bfloat16 = EmulatedElement<bf16_to_float, float_to_bf16>;
using __half = EmulatedElement<fp16_to_float, float_to_fp16>;

template <typename Element>
struct ElementPair {
  static std::uint32_t pack(float low, float high) {
    return Element::from_float(low) | static_cast<std::uint32_t>(Element::from_float(high)) << 16;
  }
  static float2 unpack(std::uint32_t pair) {
    return {Element::to_float(static_cast<std::uint16_t>(pair)),
            Element::to_float(static_cast<std::uint16_t>(pair >> 16))};
  }
};

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
