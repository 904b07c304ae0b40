/// Who reads what an operator computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashoverlap {

enum class Reader : std::uint8_t {
  caller,  ///< natural rows, from the caller's memory
  norm,    ///< `ResultReader::rms_norm`: any layout, also from the operator's memory
};

std::string_view name(Reader reader);

}  // namespace flashoverlap
