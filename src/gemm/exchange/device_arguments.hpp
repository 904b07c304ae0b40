#pragma once

#include "gemm/device/destination.hpp"
#include "gemm/device/device_tiles.hpp"

namespace flashoverlap::exchange {

struct ExchangeArguments : TileListArguments {
  Destination product;              ///< C, whole
  Destination out;                  ///< of this rank, which moves between launches
  const Destination* destinations;  ///< in memory, as a launch takes longer the more it brings along
};

}  // namespace flashoverlap::exchange
