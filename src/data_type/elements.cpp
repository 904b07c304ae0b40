#include "data_type/elements.hpp"

#include <cstdint>
#include <cstring>

#include "data_type/half.hpp"

namespace flashoverlap {
namespace {

template <typename Convert>
void widen(const std::byte* elements, std::span<float> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, elements + i * sizeof(bits), sizeof(bits));
    values[i] = convert(bits);
  }
}

template <typename Convert>
void narrow(std::span<const float> values, std::byte* elements, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = convert(values[i]);
    std::memcpy(elements + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

void read_elements(DataType data_type, const std::byte* elements, std::span<float> values) {
  if (values.empty()) return;
  switch (data_type) {
    case DataType::bf16: return widen(elements, values, bf16_to_float);
    case DataType::fp16: return widen(elements, values, fp16_to_float);
    case DataType::fp32: std::memcpy(values.data(), elements, values.size_bytes()); return;
  }
}

void write_elements(DataType data_type, std::span<const float> values, std::byte* elements) {
  if (values.empty()) return;
  switch (data_type) {
    case DataType::bf16: return narrow(values, elements, float_to_bf16);
    case DataType::fp16: return narrow(values, elements, float_to_fp16);
    case DataType::fp32: std::memcpy(elements, values.data(), values.size_bytes()); return;
  }
}

}  // namespace flashoverlap
