#include "tune/collection.hpp"

#include <utility>

#include "plan/json/key_reader.hpp"
#include "plan/json/key_writer.hpp"
#include "tune/entry_json.hpp"
#include "tune/entry_keys.hpp"

namespace flashoverlap {

std::string collection_to_json(std::span<const CachedPlan> entries) {
  KeyWriter writer;
  writer.object([&] {
    writer("schema_version", plan_cache_schema_version);
    writer("entries", entries);
  });
  writer.text += '\n';
  return std::move(writer.text);
}

Collection collection_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, "plans");
  JsonObject document(JsonValue(json, "plans"));
  check_version(document["schema_version"].integer<int>());
  Collection collection;
  const auto read_one = [&](const JsonValue& value) {
    try {
      collection.entries.push_back(read_struct<CachedPlan>(value));
    } catch (const InvalidArgument& error) {
      collection.refused.emplace_back(error.what());
    }
    return 0;
  };
  document["entries"].array(read_one);
  document.finish();
  return collection;
}

Merged merge(const std::string& directory, const std::vector<CachedPlan>& entries,
             const PlanCache::Warn& warn) {
  Merged merged;
  for (const auto& [site, plan] : entries) {
    const PlanCache cache(directory, site, warn);
    const auto old = cache.find(plan.problem, plan.reader);
    if (old != plan) cache.store(plan);
    ++(!old ? merged.added : old == plan ? merged.unchanged : merged.replaced);
  }
  return merged;
}

}  // namespace flashoverlap
