#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "gemm/device/device_tiles.hpp"

/// `Schedule::share_k`: the last wave's tiles are divided among all workers, each of which takes a part of k.
namespace flashoverlap {

/// A tile list for a kernel whose workers take every `workers`-th entry.
struct SharedTiles {
  std::vector<DeviceTile> entries;
  std::int32_t product_count = 0;  ///< entries before those that only add
  bool in_pairs = false;           ///< workers 2i and 2i + 1 have tile i of those that are shared
};

/// `tiles`: a plan's, resolved, those that multiply first; its k is one part. A worker leaves the end of one
/// tile before it begins another, which it stores, so none waits for what comes after that wait. Where three
/// workers or more have nothing but their share of one tile, each adds and stores a part of its columns. A
/// worker leaves one share at most.
SharedTiles share_k(const Plan& plan, std::span<const DeviceTile> tiles, std::int64_t products);

/// That leave sums for each other: all of each worker.
std::size_t sharing_blocks(const Plan& plan);

/// Memory in which they leave sums for each other and count the stored parts of a tile; 0 where the plan
/// shares no k.
std::size_t share_bytes(const Plan& plan);

/// The most entries that come of a plan's tiles, shared or not.
std::size_t most_entries(const Plan& plan);

}  // namespace flashoverlap
