#include "gemm/exchange/resolve_arguments.hpp"

#include "gemm/device/resolve_tiles.hpp"

namespace flashoverlap::exchange {

ExchangeArguments resolve_arguments(const Plan& plan, const GemmMemory& memory,
                                    const TileListArguments& lists) {
  const auto& own = memory.buffers[static_cast<std::size_t>(plan.rank)];
  ExchangeArguments arguments{lists};
  arguments.product = resolve_destination(own[static_cast<std::size_t>(BufferRole::staging)]);
  arguments.out = resolve_destination(own[static_cast<std::size_t>(BufferRole::out)]);
  arguments.first_group_end = arguments.tile_count;  // blocks are as many as fit, however many the GEMM has
  return arguments;
}

}  // namespace flashoverlap::exchange
