#pragma once

#include <span>

#include "gemm/exchange/device_arguments.hpp"
#include "gemm/gemm_memory.hpp"

/// A plan's tile list as the kernel reads it. Needs no GPU.
namespace flashoverlap::exchange {

/// All but the lists, whose arguments are given.
ExchangeArguments resolve_arguments(const Plan& plan, const GemmMemory& memory,
                                    const TileListArguments& lists);

/// By entry of the plan.
std::vector<DeviceTile> resolve_tiles(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

}  // namespace flashoverlap::exchange
