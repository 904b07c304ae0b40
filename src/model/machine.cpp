#include "flashoverlap/machine.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {
namespace {

/// The part of a matrix that each of its ranks moves, once, or for all_reduce twice.
double moved_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

enum class Beyond : std::uint8_t { same_bytes, same_traffic };

/// The time at a world size: between measured ones in proportion to what a rank moves of the same matrix, so
/// that it grows from one to the other. Beyond them by the last one, with the same bytes or traffic of a
/// rank.
double time_at(const CurvesByRanks& curves, int ranks, double bytes, Beyond beyond) {
  require(!curves.empty(), "machine", "no curve", "must hold a curve for every transfer that is asked for");
  const auto above = curves.lower_bound(ranks);
  if (above != curves.end() && above->first == ranks) return above->second.microseconds(bytes);
  if (above == curves.begin() || above == curves.end()) {
    const auto& [measured, curve] = above == curves.end() ? *std::prev(above) : *above;
    if (beyond == Beyond::same_bytes) return curve.microseconds(bytes);
    return curve.microseconds(bytes * moved_share(ranks) / moved_share(measured));
  }
  const auto& [fewer, fewer_curve] = *std::prev(above);
  const auto& [more, more_curve] = *above;
  const double way = (moved_share(ranks) - moved_share(fewer)) / (moved_share(more) - moved_share(fewer));
  return std::lerp(fewer_curve.microseconds(bytes), more_curve.microseconds(bytes), way);
}

/// Further away from 1, what is predicted from it may not be finite.
bool is_positive(double value) { return value >= 1e-9 && value <= 1e15; }

void check_positive(std::string_view field, double value) {
  require(is_positive(value), field, value, "must be a number between 1e-9 and 1e15");
}

void check_slowdown(std::string_view field, double slowdown) {
  require(slowdown >= 1 && slowdown <= 100, field, slowdown, "must be between 1 and 100");
}

void check_cap(std::string_view field, int cap, const Machine& machine) {
  require(cap >= 1 && cap < machine.multiprocessors, field, cap,
          fmt::format("must be at least 1 and less than multiprocessors = {}", machine.multiprocessors));
}

void check_collective(std::string_view field, MessageKind kind) {
  require(kind <= MessageKind::exchange, field, name(kind), "is not a collective");
}

void check_curve(const std::string& field, const Curve& curve) {
  require(!curve.points.empty(), field, "no points", "must hold at least one point");
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const Curve::Point& point = curve.points[i];
    const bool ascends = i == 0 || point.size > curve.points[i - 1].size;
    if (ascends && is_positive(point.size) && is_positive(point.microseconds)) continue;
    const std::string place = fmt::format("{}[{}]", field, i);  // takes time, and machines are checked often
    check_positive(place + ".size", point.size);
    check_positive(place + ".microseconds", point.microseconds);
    require(ascends, place + ".size", point.size, "must be greater than at the point before");
  }
  if (curve.points.size() > 1) {
    const Curve::Point& last = curve.points.back();
    require(last.microseconds > curve.points[curve.points.size() - 2].microseconds,
            fmt::format("{}[{}].microseconds", field, curve.points.size() - 1), last.microseconds,
            "must be greater than at the point before, as larger sizes are taken from the last two points");
  }
}

void check_curves(const std::string& field, const CurvesByRanks& curves, int fewest_ranks) {
  for (const auto& [ranks, curve] : curves) {
    const std::string place = fmt::format("{}.{}", field, ranks);
    require(ranks >= fewest_ranks && ranks <= max_ranks, place, ranks,
            fmt::format("ranks must be between {} and {}", fewest_ranks, max_ranks));
    check_curve(place, curve);
  }
}

void check_collectives(const std::string& field, const Collectives& collectives) {
  for (const auto& [kind, curves] : collectives) {
    const std::string place = fmt::format("{}.{}", field, name(kind));
    check_collective(place, kind);
    require(!curves.empty(), place, "(empty)", "must hold a curve for at least one world size");
    check_curves(place, curves, 2);
  }
}

void check_kernels(const std::vector<KernelCosts>& kernels) {
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const KernelCosts& kernel = kernels[i];
    const std::string place = fmt::format("kernels[{}]", i);
    for (const auto& [field, value, most] : {std::tuple{"tile_rows", kernel.tile.rows, max_tile_side},
                                             {"tile_cols", kernel.tile.cols, max_tile_side},
                                             {"cluster_rows", kernel.tile.cluster_rows, max_cluster_rows}}) {
      require(value >= 1 && value <= most, fmt::format("{}.{}", place, field), value,
              fmt::format("must be between 1 and {}", most));
    }
    check_curve(place + ".wave", kernel.wave);
    check_curve(place + ".lone_wave", kernel.lone_wave);
  }
}

}  // namespace

double Curve::microseconds(double size) const {
  require(!points.empty(), "curve", "no points", "must hold at least one point");
  if (points.size() == 1) return points.front().microseconds * std::max(1.0, size / points.front().size);
  const auto time_of = [this](std::vector<Point>::const_iterator point) {
    return std::ranges::min_element(point, points.end(), {}, &Point::microseconds)->microseconds;
  };
  if (size <= points.front().size) return time_of(points.begin());
  const auto end = std::ranges::lower_bound(points, size, {}, &Point::size);
  const auto right = end == points.end() ? end - 1 : end;
  const auto left = right - 1;
  const double left_us = time_of(left);
  return left_us + (size - left->size) * (time_of(right) - left_us) / (right->size - left->size);
}

double collective_microseconds(const Collectives& collectives, MessageKind kind, int ranks, double bytes) {
  if (ranks == 1) return 0;
  const auto curves = collectives.find(kind);
  require(curves != collectives.end(), "collectives", name(kind), "has no curve");
  return time_at(curves->second, ranks, bytes, Beyond::same_traffic);
}

double Machine::collective_microseconds(MessageKind kind, int ranks, double bytes) const {
  return flashoverlap::collective_microseconds(collectives, kind, ranks, bytes);
}

double Machine::copy_microseconds(int ranks, double bytes) const {
  return time_at(copy_engine, ranks, bytes, Beyond::same_bytes);
}

double Machine::store_microseconds(int ranks, double bytes) const {
  return time_at(store, ranks, bytes, Beyond::same_bytes);
}

Machine with_results_of_callers(Machine machine) {
  const auto replace = [](std::map<int, Collectives>& by_cap, std::map<int, Collectives>& for_callers) {
    for (auto& [cap, collectives] : for_callers) {
      for (auto& [kind, curves] : collectives) by_cap[cap][kind] = std::move(curves);
    }
    for_callers.clear();
  };
  replace(machine.capped, machine.capped_for_callers);
  replace(machine.during_gemm, machine.during_gemm_for_callers);
  return machine;
}

void validate(const Machine& machine) {
  require(!machine.name.empty(), "name", "\"\"", "must not be empty");
  require(machine.compute_capability >= 0 && machine.compute_capability < 1000, "compute_capability",
          machine.compute_capability, "must be 10 · major + minor of the GPUs, or 0");
  require(machine.multiprocessors >= 1 && machine.multiprocessors <= max_multiprocessors, "multiprocessors",
          machine.multiprocessors, fmt::format("must be between 1 and {}", max_multiprocessors));
  check_kernels(machine.kernels);
  check_positive("teraflops", machine.teraflops);
  check_positive("tile_microseconds", machine.tile_microseconds);
  check_curve("throttled", machine.throttled);
  check_slowdown("copy_slowdown", machine.copy_slowdown);
  check_slowdown("store_slowdown", machine.store_slowdown);
  for (const auto& [cap, slowdowns] : machine.collective_slowdowns) {
    const std::string field = fmt::format("collective_slowdowns.{}", cap);
    check_cap(field, cap, machine);
    for (const auto& [kind, slowdown] : slowdowns) {
      const std::string place = fmt::format("{}.{}", field, name(kind));
      check_collective(place, kind);
      check_slowdown(place, slowdown);
    }
  }
  check_positive("gemm_launch_microseconds", machine.gemm_launch_microseconds);
  check_positive("launch_microseconds", machine.launch_microseconds);
  check_positive("signal_microseconds", machine.signal_microseconds);
  check_positive("memory_gigabytes_per_second", machine.memory_gigabytes_per_second);
  require(machine.comm_multiprocessors >= 1 && machine.comm_multiprocessors < machine.multiprocessors,
          "comm_multiprocessors", machine.comm_multiprocessors,
          fmt::format("must be at least 1 and less than multiprocessors = {}", machine.multiprocessors));

  for (const MessageKind kind : {MessageKind::all_reduce, MessageKind::reduce_scatter,
                                 MessageKind::all_gather, MessageKind::exchange}) {
    const std::string field = fmt::format("collectives.{}", name(kind));
    const auto curves = machine.collectives.find(kind);
    require(curves != machine.collectives.end() && !curves->second.empty(), field, "(missing)",
            "must hold a curve for at least one world size");
  }
  check_collectives("collectives", machine.collectives);
  for (const auto& [name, by_cap] : {std::pair{"capped", &machine.capped},
                                     {"during_gemm", &machine.during_gemm},
                                     {"capped_for_callers", &machine.capped_for_callers},
                                     {"during_gemm_for_callers", &machine.during_gemm_for_callers}}) {
    for (const auto& [cap, collectives] : *by_cap) {
      const std::string field = fmt::format("{}.{}", name, cap);
      check_cap(field, cap, machine);
      check_collectives(field, collectives);
    }
  }

  for (const auto& [field, curves] :
       {std::pair{"copy_engine", &machine.copy_engine}, {"store", &machine.store}}) {
    require(curves->empty() != machine.peer_access, field, curves->empty() ? "(empty)" : "(given)",
            "must hold curves exactly where peer_access is true");
    check_curves(field, *curves, 2);
  }
  if (machine.block_store_gigabytes_per_second != 0)
    check_positive("block_store_gigabytes_per_second", machine.block_store_gigabytes_per_second);
}

}  // namespace flashoverlap
