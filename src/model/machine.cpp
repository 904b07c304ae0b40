#include "flashoverlap/machine.hpp"

#include <algorithm>
#include <cstdlib>

#include "flashoverlap/error.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {
namespace {

/// Bytes that each rank must move for one byte of the matrix.
double moved_share(MessageKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return kind == MessageKind::all_reduce ? 2 * others : others;
}

/// The smaller of two world sizes that are equally near.
const CurvesByRanks::value_type& nearest(const CurvesByRanks& curves, int ranks) {
  require(!curves.empty(), "machine", "no curve", "must hold a curve for every transfer that is asked for");
  return *std::ranges::min_element(curves, {},
                                   [ranks](const auto& entry) { return std::abs(entry.first - ranks); });
}

void check_positive(std::string_view field, double value) {
  // Further away from 1, what is predicted from it may not be finite.
  require(value >= 1e-9 && value <= 1e15, field, value, "must be a number between 1e-9 and 1e15");
}

void check_curve(const std::string& field, const Curve& curve) {
  require(!curve.points.empty(), field, "no points", "must hold at least one point");
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const Curve::Point& point = curve.points[i];
    const std::string place = fmt::format("{}[{}]", field, i);
    check_positive(place + ".bytes", point.bytes);
    check_positive(place + ".microseconds", point.microseconds);
    require(i == 0 || point.bytes > curve.points[i - 1].bytes, place + ".bytes", point.bytes,
            "must be greater than at the point before");
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

}  // namespace

double Curve::microseconds(double bytes) const {
  require(!points.empty(), "curve", "no points", "must hold at least one point");
  if (bytes <= points.front().bytes) return points.front().microseconds;
  if (points.size() == 1) return points.front().microseconds * bytes / points.front().bytes;
  const auto end = std::ranges::lower_bound(points, bytes, {}, &Point::bytes);
  const auto right = end == points.end() ? end - 1 : end;
  const Point& left = *(right - 1);
  return left.microseconds +
         (bytes - left.bytes) * (right->microseconds - left.microseconds) / (right->bytes - left.bytes);
}

double Machine::collective_microseconds(MessageKind kind, int ranks, double bytes) const {
  if (ranks == 1) return 0;
  const auto curves = collectives.find(kind);
  require(curves != collectives.end(), "machine", name,
          fmt::format("has no curve for {}", flashoverlap::name(kind)));
  const auto& [measured_ranks, curve] = nearest(curves->second, ranks);
  return curve.microseconds(bytes * moved_share(kind, ranks) / moved_share(kind, measured_ranks));
}

double Machine::copy_microseconds(int ranks, double bytes) const {
  return nearest(copy_engine, ranks).second.microseconds(bytes);
}

double Machine::store_microseconds(int ranks, double bytes) const {
  return nearest(store, ranks).second.microseconds(bytes);
}

void validate(const Machine& machine) {
  require(!machine.name.empty(), "name", "\"\"", "must not be empty");
  require(machine.compute_capability >= 0 && machine.compute_capability < 1000, "compute_capability",
          machine.compute_capability, "must be 10 · major + minor of the GPUs, or 0");
  require(machine.multiprocessors >= 1 && machine.multiprocessors <= max_multiprocessors, "multiprocessors",
          machine.multiprocessors, fmt::format("must be between 1 and {}", max_multiprocessors));
  check_positive("teraflops", machine.teraflops);
  check_positive("tile_microseconds", machine.tile_microseconds);
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
    check_curves(field, curves->second, 2);
  }
  for (const auto& [kind, curves] : machine.collectives) {
    require(kind <= MessageKind::exchange, "collectives", name(kind), "is not a collective");
  }

  for (const auto& [field, curves] :
       {std::pair{"copy_engine", &machine.copy_engine}, {"store", &machine.store}}) {
    require(curves->empty() != machine.peer_access, field, curves->empty() ? "(empty)" : "(given)",
            "must hold curves exactly where peer_access is true");
    check_curves(field, *curves, 2);
  }
}

}  // namespace flashoverlap
