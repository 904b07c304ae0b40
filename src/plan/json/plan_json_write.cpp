#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "plan/json/key_writer.hpp"

namespace flashoverlap {

std::string plans_to_json(std::span<const Plan> plans) {
  require(!plans.empty(), "plans", "none", "must hold the plan of at least one rank");
  const Plan& first = plans.front();
  for (const Plan& plan : plans) {
    require(plan.problem == first.problem && plan.schedule == first.schedule, "plans",
            fmt::format("rank {}", plan.rank), "must all be for the same problem and schedule");
  }

  KeyWriter writer;
  writer.object([&] {
    writer("schema_version", plan_schema_version);
    writer("problem", first.problem);
    writer("schedule", first.schedule);
    writer("plans", plans);
  });
  writer.text += '\n';
  return std::move(writer.text);
}

}  // namespace flashoverlap
