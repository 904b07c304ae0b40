/// Computes tiles of one rank, one at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exec/host/host_ranks.hpp"
#include "gemm/host/host_gemm.hpp"

namespace flashoverlap {

class TileWorker {
 public:
  TileWorker(HostRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  /// Tile `index` of the rank's list, from its first wait to its raise.
  void run(std::size_t index);

 private:
  void multiply(const Tile& tile);
  void add_partials(const Tile& tile, std::span<float> accumulator);
  void store(const Tile& tile, std::span<const float> accumulator);

  HostRanks& ranks_;
  const int rank_;
  HostGemm gemm_;
  std::vector<float> partial_;
};

}  // namespace flashoverlap
