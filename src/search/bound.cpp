#include "search/bound.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "search/kernel_choice.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

double least_gemm_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  std::vector<KernelChoice> kernels = kernel_choices(machine, machine.multiprocessors);
  if (schedule.cluster_rows <= machine.multiprocessors)
    kernels.push_back({kernel_tile(schedule), schedule.share_k});
  double slowest_rank_us = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Shape gemm = gemm_shape(problem, rank);
    if (gemm.rows == 0) continue;
    double least_us = std::numeric_limits<double>::infinity();
    for (const KernelChoice& kernel : kernels) {
      // More would make no fewer waves, and each no shorter.
      const int multiprocessors = even_multiprocessors(kernel, gemm, machine.multiprocessors);
      const double us =
          least_microseconds(machine, kernel, gemm, problem.k, problem.b_layout, multiprocessors);
      least_us = std::min(least_us, sustained_microseconds(machine, us, multiprocessors));
    }
    least_us = std::max(least_us, least_memory_microseconds(machine, gemm, problem.k)) +
               gemm_start_microseconds(machine, /*by_cublas=*/false);
    if (!machine.kernels.empty()) {
      least_us = std::min(least_us, gemm_start_microseconds(machine, /*by_cublas=*/true) +
                                        cublas_microseconds(machine, gemm, problem.k, problem.b_layout));
    }
    slowest_rank_us = std::max(slowest_rank_us, least_us);
  }
  return slowest_rank_us;
}

/// What bytes take at least, however they are cut: at the best rate that any part of them has. Times are
/// linear between the points of curves, so the best rate is at one of these or at the whole.
double least_us(const CurvesByRanks& curves, int ranks, double bytes,
                const std::function<double(double)>& microseconds) {
  double best_rate = microseconds(bytes) / bytes;
  for (const auto& [measured, curve] : curves) {
    // Where this world size was not measured, sizes are those of equal traffic.
    const double scale = (1 - 1.0 / measured) / (1 - 1.0 / ranks);
    for (const Curve::Point& point : curve.points) {
      for (const double size : {point.size, point.size * scale}) {
        if (size < bytes) best_rate = std::min(best_rate, microseconds(size) / size);
      }
    }
  }
  return bytes * best_rate;
}

double least_communication_us(const Problem& problem, const Machine& machine) {
  if (problem.ranks == 1) return 0;
  const double sent = most_sent_bytes(problem);
  if (sent == 0) return 0;
  const int ranks = problem.ranks;
  double least = std::numeric_limits<double>::infinity();
  const auto add_collectives = [&](const Collectives& collectives) {
    for (const MessageKind kind : {collective_of(problem.operation), MessageKind::exchange}) {
      const auto curves = collectives.find(kind);
      if (curves == collectives.end()) continue;
      const auto time_of = [&](double bytes) {
        return collective_microseconds(collectives, kind, ranks, bytes);
      };
      least = std::min(least, least_us(curves->second, ranks, matrix_bytes(kind, ranks, sent), time_of));
    }
  };
  add_collectives(machine.collectives);
  for (const auto* const by_cap : {&machine.capped, &machine.during_gemm}) {
    for (const auto& [cap, collectives] : *by_cap) add_collectives(collectives);
  }
  if (!machine.peer_access) return least;
  const double copied = least_us(machine.copy_engine, ranks, sent,
                                 [&](double size) { return machine.copy_microseconds(ranks, size); });
  const double stored = least_us(machine.store, ranks, sent,
                                 [&](double size) { return machine.store_microseconds(ranks, size); });
  return std::min({least, copied, stored, stored_microseconds(machine, ranks, sent)});
}

}  // namespace

double lower_bound_microseconds(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  return std::max(least_gemm_us(problem, schedule, machine), least_communication_us(problem, machine));
}

}  // namespace flashoverlap
