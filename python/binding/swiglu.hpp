#pragma once

#include <nanobind/nanobind.h>

namespace flashoverlap::python {

void bind_swiglu(nanobind::module_& module);

}  // namespace flashoverlap::python
