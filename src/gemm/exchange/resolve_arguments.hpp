#pragma once

#include "gemm/exchange/device_arguments.hpp"
#include "gemm/gemm_memory.hpp"

/// A plan's tile list as the kernel reads it. Needs no GPU.
namespace flashoverlap::exchange {

/// All but the lists, whose arguments are given.
ExchangeArguments resolve_arguments(const Plan& plan, const GemmMemory& memory,
                                    const TileListArguments& lists);

}  // namespace flashoverlap::exchange
