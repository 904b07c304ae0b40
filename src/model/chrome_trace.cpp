#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "flashoverlap/simulate.hpp"
#include "model/tracks.hpp"

namespace flashoverlap {

namespace {

nlohmann::ordered_json metadata(std::string_view what, int rank, int thread, const std::string& value) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", value}}}};
}

/// Viewers drop what overlaps on one thread, so every track is one: those of the GEMM even, of the
/// communication odd.
int thread_of(Lane lane, int track) {
  return 2 * track + (lane == Lane::gemm ? 0 : 1);
}

std::string thread_name(Lane lane, int track) {
  const std::string name = lane == Lane::gemm ? "GEMM" : "communication";
  return track == 0 ? name : fmt::format("{} {}", name, track + 1);
}

}  // namespace

std::string chrome_trace(const Simulation& simulation, const std::string& title) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const std::vector<int> tracks = lay_out(simulation);
  int named_ranks = 0;
  std::set<std::pair<int, int>> named_threads;
  const auto name_thread = [&](int rank, Lane lane, int track) {
    const int thread = thread_of(lane, track);
    if (named_threads.insert({rank, thread}).second)
      events.push_back(metadata("thread_name", rank, thread, thread_name(lane, track)));
  };
  for (std::size_t index = 0; index < tracks.size(); ++index) {
    const Interval& interval = simulation.timeline[index];
    for (; named_ranks <= interval.rank; ++named_ranks) {
      events.push_back(metadata("process_name", named_ranks, 0, fmt::format("rank {}", named_ranks)));
      name_thread(named_ranks, Lane::gemm, 0);
      name_thread(named_ranks, Lane::communication, 0);
    }
    name_thread(interval.rank, interval.lane, tracks[index]);
    events.push_back({{"name", interval.label},
                      {"cat", interval.lane == Lane::gemm ? "gemm" : "communication"},
                      {"ph", "X"},
                      {"ts", interval.start_us},
                      {"dur", interval.end_us - interval.start_us},
                      {"pid", interval.rank},
                      {"tid", thread_of(interval.lane, tracks[index])},
                      {"args", {{"group", interval.group}}}});
  }
  const nlohmann::ordered_json document = {
      {"traceEvents", events},
      {"displayTimeUnit", "ns"},
      {"otherData",
       {{"title", title}, {"latency_us", simulation.latency_us}, {"gemm_us", simulation.gemm_us}}}};
  return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace flashoverlap
