#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "plan/json/key_reader.hpp"

namespace flashoverlap {

std::vector<Plan> plans_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, "plan");
  const JsonValue root(json, "plan");
  JsonObject document(root);

  const JsonValue version = document["schema_version"];
  if (version.integer<int>() != plan_schema_version) {
    version.refuse(fmt::format("must be {}, the version that this program reads", plan_schema_version));
  }
  const auto problem = read_struct<Problem>(document["problem"]);
  const auto schedule = read_struct<Schedule>(document["schedule"]);
  const JsonValue list = document["plans"];
  auto plans = list.array(read_struct<Plan>, max_ranks);
  document.finish();

  if (std::cmp_not_equal(plans.size(), problem.ranks)) {
    list.refuse(fmt::format("must hold one plan for each of {} ranks", problem.ranks));
  }
  for (Plan& plan : plans) {
    plan.problem = problem;
    plan.schedule = schedule;
  }
  return plans;
}

}  // namespace flashoverlap
