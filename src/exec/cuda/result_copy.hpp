#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/result_rows.hpp"

namespace flashoverlap {

/// Brings what peers have written into the operator's result to where the caller wants it. What the rank
/// writes itself goes there at once, unless peers' rows lie between its own in too many places.
class ResultCopy {
 public:
  explicit ResultCopy(const Plan& plan);

  /// Whether the rank's own rows must be in the operator's result, too, when it is copied.
  bool takes_all() const noexcept { return takes_all_; }

  void enqueue(void* to, const void* from, cudaStream_t stream) const;

 private:
  std::vector<Region> regions_;
  std::int64_t row_bytes_;
  bool takes_all_;
};

}  // namespace flashoverlap
