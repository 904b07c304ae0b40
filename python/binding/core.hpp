/// Each binds one subject; `core.cpp` calls them all.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap::python {

/// The plans of all ranks, in rank order.
struct Plans {
  std::vector<Plan> of_ranks;
};

void bind_problem(nanobind::module_& module);
void bind_plans(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_host(nanobind::module_& module);

}  // namespace flashoverlap::python
