/// Where this program runs, as the cache tells sites apart.
#pragma once

#include "flashoverlap/plan_cache.hpp"

namespace flashoverlap {

/// Of the current GPU.
TuningSite current_site(int ranks);

}  // namespace flashoverlap
