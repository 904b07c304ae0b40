/// The cases of `demo`: every operation in every form, with every strategy and layout that it supports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

struct DemoCase {
  Operation operation = Operation::gemm_all_reduce;
  Operand gathered = Operand::a;
  Exchange exchange = Exchange::rows;
  Strategy strategy = Strategy::sequential;
  Layout layout = Layout::natural;

  /// What the operation gathers or exchanges: "A", "heads"; empty where it has one form only.
  std::string form() const;

  /// "all_gather_gemm-B-copy-natural".
  std::string file_name() const;

  Problem problem(const Shape& c, std::int64_t k, std::int64_t seed) const;

  /// Small enough to compute on any machine, with several waves and ragged groups.
  Problem small_problem(std::int64_t seed) const { return problem({512, 384}, 256, seed); }
  Schedule small_schedule() const;

  /// See `Schedule::shots`.
  int shots() const { return layout == Layout::partial ? 1 : 0; }

  /// A layer of a 70-billion-parameter model on 4 ranks.
  Problem large_problem(std::int64_t seed) const { return problem({8192, 8192}, 28672 / 4, seed); }
};

std::vector<DemoCase> demo_cases();

}  // namespace flashoverlap::cli
