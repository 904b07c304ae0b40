/// Results as an operator leaves them: natural, in the order in which tiles were communicated, or partial.
#pragma once

#include "flashoverlap/plan.hpp"

namespace flashoverlap::python {

/// Of the matrix that a run writes. With a capacity it has room for the rows of any routes.
inline Shape result_shape(const Plan& plan) {
  const bool takes_routes = plan.problem.capacity > 0;
  if (plan.schedule.layout == Layout::natural && !takes_routes) return out_shape(plan.problem, plan.rank);
  const Buffer& out = plan.buffer(BufferRole::out);
  return {out.rows, out.cols};
}

}  // namespace flashoverlap::python
