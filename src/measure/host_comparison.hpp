/// Plans run on the host and compared with the fp64 reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The largest error that rounding explains.
double error_limit(DataType data_type);
/// The same for `Deviation::element`. Far below the difference between two unrelated elements.
double element_limit(DataType data_type);

/// How far a result is from its reference; NaN where anything was not written.
struct Deviation {
  double relative = 0;  ///< ‖result − reference‖ / ‖reference‖: a few wrong elements hardly show
  double element = 0;   ///< the largest difference of one element, in root mean squares of the reference

  bool within_limits(DataType data_type) const;
};

Deviation deviation(const Matrix& result, std::span<const double> reference);

/// A world on the host that runs the same plans again and again, each time on other random operands. Pitches
/// are random too, with NaN between rows.
class Comparison {
 public:
  Comparison(const std::vector<Plan>& plans, const HostOptions& options);

  /// Runs the plans on random operands of this seed.
  void run(std::uint64_t seed);

  /// The worst of any rank's result of the last run. `rows_done`, if any, counts up to `reference_rows`
  /// meanwhile.
  Deviation error(std::atomic<std::int64_t>* rows_done = nullptr) const;

  std::int64_t tiles() const;           ///< that a run computes, on all ranks
  std::int64_t reference_rows() const;  ///< that the reference of a run adds up, on all ranks

  /// What each `run` and its `error` take on this machine, roughly. One core's time for a tile is measured;
  /// a product of the reference is taken to need twice as long as one of a tile. Delays count by their mean.
  double estimated_seconds() const;
  /// Memory of operands, workspaces, results and reference.
  double bytes() const;

 private:
  bool shares_reference(std::size_t rank) const;

  std::vector<Plan> plans_;
  HostOptions options_;
  HostExecutor executor_;
  std::vector<Matrix> a_;
  std::vector<Matrix> b_;
  std::vector<Matrix> results_;
};

}  // namespace flashoverlap
