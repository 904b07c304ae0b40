/// bf16 and fp16 as 16 bits, to and from fp32; rounding to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace flashoverlap {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  // Rounding up might carry a NaN's mantissa into infinity; a set quiet bit keeps it a NaN.
  const std::uint32_t rounded = is_nan ? bits | 0x00400000 : bits + 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(rounded >> 16);
}

inline float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fff) << 13;
  const bool is_finite = (bits & 0x7c00) != 0x7c00;
  // The exponents' biases differ by 112; the product is exact and also normalises subnormals.
  const std::uint32_t widened = is_finite
                                    ? std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f)
                                    : magnitude | 0x7f800000;
  return std::bit_cast<float>(sign | widened);
}

inline std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t narrowed = 0;
  if (magnitude > 0x7f800000) {
    narrowed = 0x7e00 | ((magnitude >> 13) & 0x3ff);  // quiet NaN, payload kept
  } else if (magnitude >= std::bit_cast<std::uint32_t>(65520.0f)) {
    narrowed = 0x7c00;
  } else if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14f)) {
    // Added to 0.5, whose last place is 2^-24, a subnormal is rounded by the addition itself.
    narrowed = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
               std::bit_cast<std::uint32_t>(0.5f);
  } else {
    narrowed = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | narrowed);
}

}  // namespace flashoverlap
