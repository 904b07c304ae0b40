#include <iostream>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "flashoverlap/version.hpp"

int main() {
  using namespace flashoverlap;
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 512, .n = 512, .k = 64, .ranks = 2};
  const auto plans = make_plans(problem, Schedule{.strategy = Strategy::signal, .multiprocessors = 4});
  validate(plans);
  std::cout << plans.size() << " valid plans of version " FLASHOVERLAP_VERSION " = "
            << FLASHOVERLAP_VERSION_MAJOR << '.' << FLASHOVERLAP_VERSION_MINOR << '.'
            << FLASHOVERLAP_VERSION_PATCH << '\n';
}
