#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

/// The elements from row to row of a matrix for which a caller gives `pitch`. Throws `InvalidArgument` that
/// names `argument` where rows would overlap.
inline std::int64_t checked_pitch(std::string_view argument, std::int64_t pitch, std::int64_t cols) {
  require(pitch == 0 || pitch >= cols, argument, pitch,
          fmt::format("must be 0 or at least the length of a row, {}", cols));
  return pitch == 0 ? cols : pitch;
}

}  // namespace flashoverlap
