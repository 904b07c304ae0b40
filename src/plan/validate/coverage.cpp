#include <algorithm>
#include <map>

#include "plan/at.hpp"
#include "plan/validate/findings.hpp"

namespace flashoverlap {
namespace {

/// Two tiles that overlap; null if there are none. Sweeps over the rows with the tiles at the
/// current row sorted by column.
const Tile* find_overlap(const std::vector<Tile>& tiles, const Tile*& other) {
  struct Edge {
    std::int32_t row;
    bool begins;
    const Tile* tile;
  };
  std::vector<Edge> edges;
  edges.reserve(tiles.size() * 2);
  for (const Tile& tile : tiles) {
    edges.push_back({tile.row, true, &tile});
    edges.push_back({tile.row + tile.rows, false, &tile});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.row != b.row ? a.row < b.row : a.begins < b.begins;
  });
  std::map<std::int32_t, const Tile*> by_column;
  for (const Edge& edge : edges) {
    const Tile& tile = *edge.tile;
    if (!edge.begins) {
      by_column.erase(tile.col);
      continue;
    }
    const auto after = by_column.lower_bound(tile.col);
    if (after != by_column.end() && after->first < tile.col + tile.cols) other = after->second;
    if (after != by_column.begin()) {
      const Tile* before = std::prev(after)->second;
      if (before->col + before->cols > tile.col) other = before;
    }
    if (other != nullptr) return &tile;
    by_column.emplace(tile.col, &tile);
  }
  return nullptr;
}

}  // namespace

void find_coverage_violations(std::span<const Plan> plans, const Areas& areas, Findings& findings) {
  for (const Plan& plan : plans) {
    std::vector<Tile> tiles;
    for (const TileArea& area : at(areas, plan.rank)) {
      if (!at(plan.tiles, area.corner).only_adds) tiles.push_back(whole(plan, area));
    }
    const Tile* other = nullptr;
    if (const Tile* tile = find_overlap(tiles, other)) {
      findings.add(Violation::coverage,
                   "rank {}: the tiles at row {}, column {} and at row {}, column {} overlap", plan.rank,
                   other->row, other->col, tile->row, tile->col);
      continue;
    }
    std::int64_t computed = 0;
    for (const Tile& tile : tiles) computed += std::int64_t{tile.rows} * tile.cols;
    const Shape gemm = gemm_shape(plan.problem, plan.rank);
    if (computed != gemm.rows * gemm.cols) {
      findings.add(Violation::coverage, "rank {}: the tiles compute {} elements of C, which has {}",
                   plan.rank, computed, gemm.rows * gemm.cols);
    }
  }
}

}  // namespace flashoverlap
