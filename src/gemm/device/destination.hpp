#pragma once

#include <cstdint>

namespace flashoverlap {

/// A matrix of 16-bit elements that threads store to, of this GPU or a peer.
struct Destination {
  std::uint16_t* base;
  std::int64_t pitch;  ///< elements from row to row
};

}  // namespace flashoverlap
