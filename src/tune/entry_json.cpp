#include "tune/entry_json.hpp"

#include <utility>

#include "plan/json/key_reader.hpp"
#include "plan/json/key_writer.hpp"
#include "tune/entry_keys.hpp"

namespace flashoverlap {

void check_version(int version) {
  if (version == plan_cache_schema_version) return;
  throw OutdatedEntry(
      "schema_version", version,
      fmt::format("must be {}, the version that this program reads", plan_cache_schema_version));
}

void validate(const CachedPlan& entry) {
  validate(entry.site);
  validate(entry.plan);
  require(entry.plan.problem.ranks == entry.site.ranks, "ranks", entry.plan.problem.ranks,
          fmt::format("must be {}, those of the site", entry.site.ranks));
}

std::string entry_to_json(const CachedPlan& entry) {
  KeyWriter writer;
  writer.object([&] {
    writer("schema_version", plan_cache_schema_version);
    visit_keys(writer, entry);
  });
  writer.text += '\n';
  return std::move(writer.text);
}

CachedPlan entry_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, "entry");
  KeyReader reader(JsonValue(json, "entry"));
  int version = 0;
  reader("schema_version", version);
  check_version(version);
  CachedPlan entry;
  visit_keys(reader, entry);
  reader.finish();
  validate(entry);
  return entry;
}

}  // namespace flashoverlap
