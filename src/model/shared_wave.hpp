/// The last wave where its workers share k: see `Schedule::share_k`.
#pragma once

#include <cstdint>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

/// What it takes longer than `wave_us`, of a whole wave, times tiles over workers: for the sums that are left
/// and fetched, and where k has few steps for each worker.
double sharing_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                            std::int64_t tiles, std::int64_t workers, double wave_us);

}  // namespace flashoverlap
