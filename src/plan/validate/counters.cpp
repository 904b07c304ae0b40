#include "plan/at.hpp"
#include "plan/message_rules.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/tile_counters.hpp"

namespace flashoverlap {

void find_counter_violations(std::span<const Plan> plans, Findings& findings) {
  const CounterNumbers numbers(plans);
  std::vector<std::int64_t> raised(numbers.count(), 0);
  std::vector<int> resets(numbers.count(), 0);
  std::vector<bool> awaited(numbers.count(), false);
  for (const Plan& plan : plans) {
    for (const Tile& tile : plan.tiles) {
      for_each_raise(plan, tile, [&](const Raise& raise) {
        raised[numbers.of(raise.rank, raise.counter)] += plan.schedule.cluster_rows;
      });
      for_each_awaited(plan, tile,
                       [&](std::int32_t counter) { awaited[numbers.of(plan.rank, counter)] = true; });
    }
    for (const Message& message : plan.messages) {
      for (const Raise& raise : message.raises) ++raised[numbers.of(raise.rank, raise.counter)];
      for (const Wait& wait : message.waits) {
        awaited[numbers.of(plan.rank, wait.counter)] = true;
        resets[numbers.of(plan.rank, wait.counter)] += wait.reset;
      }
    }
  }
  for (const Plan& plan : plans) {
    for (std::int32_t counter = 0; counter < std::ssize(plan.counters); ++counter) {
      const std::size_t id = numbers.of(plan.rank, counter);
      const std::int32_t target = at(plan.counters, counter).target;
      const std::string which = fmt::format("rank {}'s {}", plan.rank, describe_counter(plan, counter));
      if (raised[id] != target) {
        findings.add(Violation::counter, "{} is raised {} times, its target is {}", which, raised[id],
                     target);
      } else if (target == 0 && awaited[id]) {
        findings.add(Violation::counter, "{} is awaited, but nothing raises it", which);
      } else if (target > 0 && resets[id] != 1) {
        findings.add(Violation::counter, "{} is reset {} times a run, not once: it would not end at zero",
                     which, resets[id]);
      }
    }
  }
}

}  // namespace flashoverlap
