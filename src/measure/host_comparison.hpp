/// Plans run on the host and measured against the fp64 reference.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The largest error that rounding explains.
double error_limit(DataType data_type);

/// A world on the host that runs the same plans again and again, each time on other random operands.
class Comparison {
 public:
  Comparison(const std::vector<Plan>& plans, const HostOptions& options);

  /// The largest relative error of any rank's result; NaN if anything was not written.
  double run(std::uint64_t seed);

 private:
  std::vector<Plan> plans_;
  HostExecutor executor_;
};

}  // namespace flashoverlap
