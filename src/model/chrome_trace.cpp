#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "flashoverlap/simulate.hpp"
#include "model/pictures.hpp"

namespace flashoverlap {
namespace {

using Json = nlohmann::ordered_json;

/// Viewers drop intervals that overlap on one thread, so every track is a thread: even numbers for the GEMM,
/// odd numbers for the communication.
int thread_of(Lane lane, int track) { return 2 * track + (lane == Lane::gemm ? 0 : 1); }

std::string thread_name(Lane lane, int track) {
  const std::string name = lane == Lane::gemm ? "GEMM" : "communication";
  return track == 0 ? name : fmt::format("{} {}", name, track + 1);
}

Json metadata(std::string_view what, int process, int thread, std::string_view key, const Json& value) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{key, value}}}};
}

/// Names processes and their threads and puts them in order: the GEMM before the communication.
void describe_threads(Json& events, const std::vector<Interval>& timeline, const std::vector<int>& tracks,
                      int ranks) {
  std::set<std::tuple<int, Lane, int>> threads;  // process, lane, track
  for (std::size_t index = 0; index < tracks.size(); ++index) {
    const int process = timeline[index].rank;
    for (const Lane lane : {Lane::gemm, Lane::communication}) threads.emplace(process, lane, 0);
    threads.emplace(process, timeline[index].lane, tracks[index]);
  }
  int order = 0;
  for (const auto& [process, lane, track] : threads) {
    const int thread = thread_of(lane, track);
    if (thread == 0) {
      const std::string name = process < ranks ? fmt::format("rank {}", process) : "sequential";
      events.push_back(metadata("process_name", process, 0, "name", name));
      events.push_back(metadata("process_sort_index", process, 0, "sort_index", process));
    }
    events.push_back(metadata("thread_name", process, thread, "name", thread_name(lane, track)));
    events.push_back(metadata("thread_sort_index", process, thread, "sort_index", order++));
  }
}

}  // namespace

std::string chrome_trace(const Simulation& simulation, const TimelineCaption& caption) {
  Json about{{"title", headline(caption)},
             {"subtitle", caption.subtitle},
             {"source", name(caption.source)},
             {"latency_us", simulation.latency_us},
             {"gemm_us", simulation.gemm_us}};
  std::vector<Interval> timeline = simulation.timeline;
  int ranks = 0;
  for (const Interval& interval : timeline) ranks = std::max(ranks, interval.rank + 1);
  if (caption.sequential) {
    std::ranges::copy(intervals(*caption.sequential, ranks), std::back_inserter(timeline));
    about["sequential_us"] = caption.sequential->total_us;
  }
  const std::vector<int> tracks = lay_out(timeline);
  Json events = Json::array();
  describe_threads(events, timeline, tracks, ranks);
  for (std::size_t index = 0; index < tracks.size(); ++index) {
    const Interval& interval = timeline[index];
    events.push_back({{"name", interval.label},
                      {"cat", interval.lane == Lane::gemm ? "gemm" : "communication"},
                      {"ph", "X"},
                      {"ts", interval.start_us},
                      {"dur", interval.end_us - interval.start_us},
                      {"pid", interval.rank},
                      {"tid", thread_of(interval.lane, tracks[index])},
                      {"args", {{"group", interval.group}}}});
  }
  const Json document{{"traceEvents", events}, {"displayTimeUnit", "ns"}, {"otherData", about}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace flashoverlap
