#include "exec/cuda/resolved_raise.hpp"

#include <map>
#include <utility>

namespace flashoverlap {

// A counter that is raised in order goes through the same values in every run, so they can be written, which
// needs no multiprocessor.
std::vector<std::vector<ResolvedRaise>> resolve_raises(
    const std::vector<Message>& messages, const PlanMemory& memory,
    const std::function<bool(const Raise&)>& is_raised_in_order) {
  std::vector<std::vector<ResolvedRaise>> by_message;
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> raised;
  for (const Message& message : messages) {
    std::vector<ResolvedRaise>& resolved = by_message.emplace_back();
    for (const Raise& raise : message.raises) {
      const std::uint32_t value = ++raised[{raise.rank, raise.counter}];
      resolved.push_back({memory.counters(raise.rank) + raise.counter,
                          is_raised_in_order(raise) ? std::optional(value) : std::nullopt});
    }
  }
  return by_message;
}

}  // namespace flashoverlap
