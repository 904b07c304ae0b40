/// The element types of operands and results.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashoverlap {

/// Type of operands and result in memory. Products are always accumulated in fp32. fp32 itself runs on the
/// host only.
enum class DataType : std::uint8_t { bf16, fp16, fp32 };

/// Bytes of one element.
int size_of(DataType data_type);

/// Whether GPUs run GEMMs on it.
bool runs_on_gpus(DataType data_type);

std::string_view name(DataType data_type);

}  // namespace flashoverlap
