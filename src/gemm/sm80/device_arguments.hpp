#pragma once

#include "gemm/device/destination.hpp"
#include "gemm/device/device_tiles.hpp"

namespace flashoverlap::sm80 {

/// A matrix of 16-bit elements, of this GPU or a peer.
struct DeviceOperand {
  const std::byte* base;
  std::int32_t pitch;  ///< bytes from row to row
};

struct GemmArguments : TileListArguments {
  DeviceOperand a[2];  ///< operand and gathered operand
  DeviceOperand b[2];
  std::int32_t expert_depth;  ///< rows of B's matrix from an expert's to the next one's; 0: it is one matrix
  Destination out;            ///< of this rank, which moves between launches
  const Destination* destinations;  ///< in memory, as a launch takes longer the more it brings along
};

}  // namespace flashoverlap::sm80
