#pragma once

#include <string>

#include "flashoverlap/plan_cache.hpp"
#include "measure/gpu_world.hpp"
#include "tune/current_site.hpp"

namespace flashoverlap::cli {

/// The cache of these GPUs. `directory`: empty for the usual one.
inline PlanCache site_cache(const GpuRank& gpu, const std::string& directory) {
  return PlanCache(cache_directory(directory), current_site(gpu));
}

}  // namespace flashoverlap::cli
