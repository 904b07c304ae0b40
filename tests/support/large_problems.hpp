// Random problems of the sizes that GPUs compute, and machines to predict them on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap::testing {

inline void scale(CurvesByRanks& all, double factor) {
  for (auto& [ranks, curve] : all) {
    for (Curve::Point& point : curve.points) point.microseconds *= factor;
  }
}

inline void scale(Collectives& collectives, double factor) {
  for (auto& [kind, curves] : collectives) scale(curves, factor);
}

/// The machine with the time of every transfer multiplied.
inline Machine with_transfers(Machine machine, double factor) {
  scale(machine.collectives, factor);
  for (auto* const by_cap : {&machine.capped, &machine.during_gemm, &machine.capped_for_callers,
                             &machine.during_gemm_for_callers}) {
    for (auto& [cap, collectives] : *by_cap) scale(collectives, factor);
  }
  scale(machine.copy_engine, factor);
  scale(machine.store, factor);
  return machine;
}

class LargeProblems {
 public:
  explicit LargeProblems(std::uint64_t seed) : engine_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }

  /// Of any operation, on 2 to 8 ranks; no rows are routed by lists.
  Problem next() {
    Problem problem{.operation = pick<Operation>(), .ranks = between(2, 8)};
    problem.exchange = pick<Exchange>();
    problem.gathered = pick<Operand>();
    if (problem.operation != Operation::all_to_all_gemm) problem.a_layout = pick<OperandLayout>();
    problem.b_layout = pick<OperandLayout>();
    problem.m = extent(64, 16'384, problem.ranks);
    problem.n = extent(64, 30'000, 8 * problem.ranks);
    // A tile begins with its rank's own part of k only where that is whole steps of the kernel.
    problem.k = extent(64, 30'000, (gathers_along_k(problem) ? 64 : 8) * problem.ranks);
    return problem;
  }

  /// With and without peer access; of some a GEMM makes collectives slower.
  Machine machine() {
    Machine machine = preset(between(0, 1) == 0 ? "h200-nvlink" : "h200-pcie");
    if (between(0, 1) == 0) return machine;
    const int cap = machine.comm_multiprocessors;
    machine.capped[cap] = machine.collectives;
    scale(machine.capped[cap], 1.2);
    machine.during_gemm[cap] = machine.capped[cap];
    scale(machine.during_gemm[cap], 1.3);
    return machine;
  }

 private:
  template <typename Enum>
  Enum pick() {
    return enumerators<Enum>[static_cast<std::size_t>(between(0, std::ssize(enumerators<Enum>) - 1))];
  }

  /// As many small ones as large ones.
  std::int64_t extent(double least, double most, std::int64_t multiple) {
    const double drawn = std::exp(std::uniform_real_distribution(std::log(least), std::log(most))(engine_));
    return std::max<std::int64_t>(1, std::llround(drawn / static_cast<double>(multiple))) * multiple;
  }

  std::mt19937_64 engine_;
};

inline std::string describe(const Problem& p, const Machine& machine) {
  return fmt::format("{} m {} n {} k {} on {} ranks of {}, {}, gathered {}, A {}, B {}", name(p.operation),
                     p.m, p.n, p.k, p.ranks, machine.name, name(p.exchange), name(p.gathered),
                     name(p.a_layout), name(p.b_layout));
}

}  // namespace flashoverlap::testing
