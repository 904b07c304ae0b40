/// The order in which a simulation handles what happens.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "model/rank_progress.hpp"

namespace flashoverlap {

/// By time, and events of the same time in the order in which they were pushed. Ranks that do the same share
/// times, so that there are far fewer of these than events.
class EventQueue {
 public:
  bool empty() const { return times_.empty(); }

  void push(const SimulationEvent& event) {
    auto place = times_.lower_bound(event.time_us);
    if (place == times_.end() || place->first != event.time_us) place = insert(place, event.time_us);
    place->second.events.push_back(event);
  }

  SimulationEvent pop() {
    const auto first = times_.begin();
    AtOnce& at_once = first->second;
    const SimulationEvent event = at_once.events[at_once.handled++];
    if (at_once.handled == at_once.events.size()) {
      at_once.events.clear();
      at_once.handled = 0;
      spare_.push_back(times_.extract(first));
    }
    return event;
  }

 private:
  struct AtOnce {
    std::vector<SimulationEvent> events;
    std::size_t handled = 0;
  };
  using Times = std::map<double, AtOnce>;

  Times::iterator insert(Times::iterator before, double time_us) {
    if (spare_.empty()) return times_.emplace_hint(before, time_us, AtOnce{});
    Times::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = time_us;
    return times_.insert(before, std::move(node));
  }

  Times times_;
  std::vector<Times::node_type> spare_;  ///< with their memory
};

}  // namespace flashoverlap
