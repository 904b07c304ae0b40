/// The messages of one rank, as its communication stream runs them.
#pragma once

#include <cstddef>

#include "exec/host/host_ranks.hpp"

namespace flashoverlap {

/// Message `index` of the rank's list: its waits, its transfer, its raises.
void run_message(HostRanks& ranks, int rank, std::size_t index);

}  // namespace flashoverlap
