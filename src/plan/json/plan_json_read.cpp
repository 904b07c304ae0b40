#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "plan/json/json_reader.hpp"
#include "plan/json/plan_keys.hpp"

namespace flashoverlap {
namespace {

template <typename Struct>
Struct read_struct(const JsonValue& value);

template <typename Field>
Field read(const JsonValue& value) {
  if constexpr (std::same_as<Field, bool>) {
    return value.boolean();
  } else if constexpr (std::is_enum_v<Field>) {
    return value.enumerator<Field>();
  } else if constexpr (std::integral<Field>) {
    return value.integer<Field>();
  } else if constexpr (requires { typename Field::allocator_type; }) {  // a vector
    return value.array(read<typename Field::value_type>);
  } else {
    return read_struct<Field>(value);
  }
}

class PlanReader {
 public:
  explicit PlanReader(const JsonValue& value) : object_(value) {}

  template <typename Field>
  void operator()(std::string_view key, Field& field) {
    field = read<Field>(object_[key]);
  }

  template <std::integral Integer>
  void operator()(std::string_view key, Integer& field, Integer minimum) {
    field = object_[key].integer(minimum);
  }

  template <typename Field>
  void unless_none(std::string_view key, Field& field, std::int32_t /*absent*/ = none) {
    if (const auto value = object_.find(key)) field = read<Field>(*value);
  }

  void finish() const { object_.finish(); }

 private:
  JsonObject object_;
};

template <typename Struct>
Struct read_struct(const JsonValue& value) {
  Struct fields;
  PlanReader reader(value);
  visit_keys(reader, fields);
  reader.finish();
  return fields;
}

/// A problem or schedule that passes `validate`; errors name its path in the document.
template <typename Struct>
Struct read_checked(const JsonValue& value) {
  Struct fields = read_struct<Struct>(value);
  try {
    validate(fields);
  } catch (const InvalidArgument& error) {
    throw error.renamed(value.path() + "." + error.argument());
  }
  return fields;
}

}  // namespace

std::vector<Plan> plans_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, "plan");
  const JsonValue root(json, "plan");
  JsonObject document(root);

  const JsonValue version = document["schema_version"];
  if (version.integer<int>() != plan_schema_version) {
    version.refuse(fmt::format("must be {}, the version that this program reads", plan_schema_version));
  }
  const auto problem = read_checked<Problem>(document["problem"]);
  const auto schedule = read_checked<Schedule>(document["schedule"]);
  const JsonValue list = document["plans"];
  auto plans = list.array(read<Plan>, max_ranks);
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
