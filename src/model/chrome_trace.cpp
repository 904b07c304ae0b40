#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "flashoverlap/simulate.hpp"

namespace flashoverlap {

namespace {

nlohmann::ordered_json metadata(std::string_view what, int rank, int thread, const std::string& value) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", value}}}};
}

int thread_of(Lane lane) {
  return static_cast<int>(lane);
}

}  // namespace

std::string chrome_trace(const Simulation& simulation, const std::string& title) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  int named_ranks = 0;
  for (const Interval& interval : simulation.timeline) {
    for (; named_ranks <= interval.rank; ++named_ranks) {
      events.push_back(metadata("process_name", named_ranks, 0, fmt::format("rank {}", named_ranks)));
      events.push_back(metadata("thread_name", named_ranks, thread_of(Lane::gemm), "GEMM"));
      events.push_back(metadata("thread_name", named_ranks, thread_of(Lane::communication), "communication"));
    }
    events.push_back({{"name", interval.label},
                      {"cat", interval.lane == Lane::gemm ? "gemm" : "communication"},
                      {"ph", "X"},
                      {"ts", interval.start_us},
                      {"dur", interval.end_us - interval.start_us},
                      {"pid", interval.rank},
                      {"tid", thread_of(interval.lane)},
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
