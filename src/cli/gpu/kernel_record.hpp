/// The kernel that a benchmark has found to be the fastest, in its table and in its JSON.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "search/kernel_choice.hpp"

namespace flashoverlap::cli {

/// Rows, columns and blocks of a cluster, and k where it is shared: "128x256/1k".
inline std::string kernel_label(const KernelChoice& kernel) {
  const KernelTile& tile = kernel.tile;
  return fmt::format("{}x{}/{}{}", tile.rows, tile.cols, tile.cluster_rows, kernel.share_k ? "k" : "");
}

inline nlohmann::ordered_json kernel_record(const KernelChoice& kernel) {
  return {{"tile_rows", kernel.tile.rows},
          {"tile_cols", kernel.tile.cols},
          {"cluster_rows", kernel.tile.cluster_rows},
          {"share_k", kernel.share_k}};
}

}  // namespace flashoverlap::cli
