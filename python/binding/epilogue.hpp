#pragma once

#include <nanobind/nanobind.h>

namespace flashoverlap::python {

/// What follows products, on matrices of the caller.
void bind_epilogue(nanobind::module_& module);

}  // namespace flashoverlap::python
