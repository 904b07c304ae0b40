/// Runs of elements of any data type, to and from fp32.
#pragma once

#include <cstddef>
#include <span>

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

/// Reads values.size() elements.
void read_elements(DataType data_type, const std::byte* elements, std::span<float> values);

/// The reverse, rounded to nearest even.
void write_elements(DataType data_type, std::span<const float> values, std::byte* elements);

}  // namespace flashoverlap
