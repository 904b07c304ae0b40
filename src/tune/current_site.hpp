/// Where this program runs, as the cache tells sites apart.
#pragma once

#include "flashoverlap/plan_cache.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Of the ranks.
TuningSite current_site(const GpuRank& gpu);

}  // namespace flashoverlap
