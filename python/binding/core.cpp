#include "core.hpp"

#include "flashoverlap/error.hpp"
#include "flashoverlap/version.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  using namespace flashoverlap;
  module.doc() = "What needs no GPU: problems, plans, predictions, ranks on the host.";
  const nb::exception<Error> error(module, "Error", PyExc_RuntimeError);
  nb::exception<InvalidArgument>(module, "InvalidArgument", error);
  nb::exception<InvalidPlan>(module, "InvalidPlan", error);
  nb::exception<WaitExpired>(module, "WaitExpired", error);
  nb::exception<CommunicationError>(module, "CommunicationError", error);
  nb::exception<CudaError>(module, "CudaError", error);
  python::bind_problem(module);
  python::bind_plans(module);
  python::bind_model(module);
  python::bind_host(module);
}
