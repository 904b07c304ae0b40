/// Results as an operator leaves them: natural, or in the order in which tiles were communicated.
#pragma once

#include "flashoverlap/plan.hpp"

namespace flashoverlap::python {

/// Of the matrix that a run writes.
inline Shape result_shape(const Plan& plan) {
  if (plan.schedule.layout == Layout::natural) return out_shape(plan.problem, plan.rank);
  const Buffer& out = plan.buffer(BufferRole::out);
  return {out.rows, out.cols};
}

}  // namespace flashoverlap::python
