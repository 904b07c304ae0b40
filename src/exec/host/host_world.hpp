/// Runs plans as they are, right or wrong; `HostExecutor` validates them first.
#pragma once

#include <span>
#include <vector>

#include "exec/host/host_ranks.hpp"

namespace flashoverlap {

/// Every rank's operands for one run.
struct HostOperands {
  std::span<const Matrix> a;
  std::span<const Matrix> b;
};

class HostWorld {
 public:
  HostWorld(std::vector<Plan> plans, const HostOptions& options) : ranks_(std::move(plans), options) {}

  const HostRanks& ranks() const { return ranks_; }

  /// `results[i][r]`: buffer `out` of rank r at the end of its run i. The ranks go from run to run without
  /// waiting for each other, as on streams.
  std::vector<std::vector<Matrix>> run(std::span<const HostOperands> runs);

 private:
  Matrix run_rank(int rank, const Matrix& a, const Matrix& b);

  HostRanks ranks_;
};

}  // namespace flashoverlap
