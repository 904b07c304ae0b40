#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t most_points = 4096;
constexpr std::size_t most_sources = 256;

/// The keys of a machine document, listed once for the writer and the reader.
void visit_keys(const auto& visit, auto& machine) {
  visit("name", machine.name);
  visit("sources", machine.sources);
  visit("compute_capability", machine.compute_capability);
  visit("multiprocessors", machine.multiprocessors);
  visit("teraflops", machine.teraflops);
  visit("tile_microseconds", machine.tile_microseconds);
  visit("launch_microseconds", machine.launch_microseconds);
  visit("signal_microseconds", machine.signal_microseconds);
  visit("memory_gigabytes_per_second", machine.memory_gigabytes_per_second);
  visit("comm_multiprocessors", machine.comm_multiprocessors);
  visit("peer_access", machine.peer_access);
  visit("collectives", machine.collectives);
  visit("copy_engine", machine.copy_engine);
  visit("store", machine.store);
}

nlohmann::ordered_json to_json(const auto& field) { return field; }

nlohmann::ordered_json to_json(const CurvesByRanks& curves) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [ranks, curve] : curves) {
    nlohmann::ordered_json& points = json[std::to_string(ranks)] = nlohmann::ordered_json::array();
    for (const Curve::Point& point : curve.points) {
      points.push_back({{"bytes", point.bytes}, {"microseconds", point.microseconds}});
    }
  }
  return json;
}

nlohmann::ordered_json to_json(const std::map<MessageKind, CurvesByRanks>& collectives) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [kind, curves] : collectives) json[std::string(name(kind))] = to_json(curves);
  return json;
}

Curve::Point point_from_json(const JsonValue& value) {
  JsonObject object(value);
  const Curve::Point point{object["bytes"].number(), object["microseconds"].number()};
  object.finish();
  return point;
}

void read(const JsonValue& value, std::string& field) { field = value.string(); }
void read(const JsonValue& value, int& field) { field = value.integer<int>(); }
void read(const JsonValue& value, double& field) { field = value.number(); }
void read(const JsonValue& value, bool& field) { field = value.boolean(); }

void read(const JsonValue& value, std::vector<std::string>& sources) {
  sources = value.array([](const JsonValue& source) { return source.string(); }, most_sources);
}

void read(const JsonValue& value, CurvesByRanks& curves) {
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& points) {
    int ranks = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), ranks);
    if (error != std::errc{} || end != key.data() + key.size() || key != std::to_string(ranks)) {
      points.refuse("must stand under the number of ranks it holds for");
    }
    curves[ranks].points = points.array(point_from_json, most_points);
  });
}

void read(const JsonValue& value, std::map<MessageKind, CurvesByRanks>& collectives) {
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& curves) {
    const auto kind = from_name<MessageKind>(key);
    if (!kind) curves.refuse("is not a known key");
    read(curves, collectives[*kind]);
  });
}

/// The files of machines/, embedded by CMake.
constexpr std::string_view documents[] = {
#include "presets.inc"
};

const std::vector<Machine>& presets() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> read;
    for (const std::string_view document : documents) read.push_back(machine_from_json(document));
    return read;
  }();
  return machines;
}

}  // namespace

std::string machine_to_json(const Machine& machine) {
  nlohmann::ordered_json document{{"schema_version", machine_schema_version}};
  visit_keys([&](const char* key, const auto& field) { document[key] = to_json(field); }, machine);
  return document.dump(2) + "\n";
}

Machine machine_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, "machine");
  JsonObject document(JsonValue(json, "machine"));

  const JsonValue version = document["schema_version"];
  if (version.integer<int>() != machine_schema_version) {
    version.refuse(fmt::format("must be {}, the version that this program reads", machine_schema_version));
  }
  Machine machine;
  visit_keys([&](const char* key, auto& field) { read(document[key], field); }, machine);
  document.finish();
  validate(machine);
  return machine;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Machine& machine : presets()) names.push_back(machine.name);
  return names;
}

Machine preset(std::string_view name) {
  for (const Machine& machine : presets()) {
    if (machine.name == name) return machine;
  }
  throw InvalidArgument("machine", fmt::format("\"{}\"", name),
                        fmt::format("must be one of {}", fmt::join(preset_names(), ", ")));
}

}  // namespace flashoverlap
