#include <charconv>
#include <nlohmann/json.hpp>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {

namespace {

constexpr std::size_t most_points = 4096;
constexpr std::size_t most_sources = 256;

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

Curve::Point point_from_json(const JsonValue& value) {
  JsonObject object(value);
  const Curve::Point point{object["bytes"].number(), object["microseconds"].number()};
  object.finish();
  return point;
}

CurvesByRanks curves_from_json(const JsonValue& value) {
  CurvesByRanks curves;
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& points) {
    int ranks = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), ranks);
    if (error != std::errc{} || end != key.data() + key.size() || key != std::to_string(ranks)) {
      points.refuse("must stand under the number of ranks it holds for");
    }
    curves[ranks].points = points.array(point_from_json, most_points);
  });
  return curves;
}

std::map<MessageKind, CurvesByRanks> collectives_from_json(const JsonValue& value) {
  std::map<MessageKind, CurvesByRanks> collectives;
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& curves) {
    const auto kind = from_name<MessageKind>(key);
    if (!kind) curves.refuse("is not a known key");
    collectives[*kind] = curves_from_json(curves);
  });
  return collectives;
}

}  // namespace

std::string machine_to_json(const Machine& machine) {
  nlohmann::ordered_json collectives = nlohmann::ordered_json::object();
  for (const auto& [kind, curves] : machine.collectives)
    collectives[std::string(name(kind))] = to_json(curves);
  const nlohmann::ordered_json document = {
      {"schema_version", machine_schema_version},
      {"name", machine.name},
      {"sources", machine.sources},
      {"compute_capability", machine.compute_capability},
      {"multiprocessors", machine.multiprocessors},
      {"teraflops", machine.teraflops},
      {"tile_microseconds", machine.tile_microseconds},
      {"launch_microseconds", machine.launch_microseconds},
      {"signal_microseconds", machine.signal_microseconds},
      {"memory_gigabytes_per_second", machine.memory_gigabytes_per_second},
      {"comm_multiprocessors", machine.comm_multiprocessors},
      {"peer_access", machine.peer_access},
      {"collectives", collectives},
      {"copy_engine", to_json(machine.copy_engine)},
      {"store", to_json(machine.store)},
  };
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
  machine.name = document["name"].string();
  machine.sources =
      document["sources"].array([](const JsonValue& source) { return source.string(); }, most_sources);
  machine.compute_capability = document["compute_capability"].integer<int>();
  machine.multiprocessors = document["multiprocessors"].integer<int>();
  machine.teraflops = document["teraflops"].number();
  machine.tile_microseconds = document["tile_microseconds"].number();
  machine.launch_microseconds = document["launch_microseconds"].number();
  machine.signal_microseconds = document["signal_microseconds"].number();
  machine.memory_gigabytes_per_second = document["memory_gigabytes_per_second"].number();
  machine.comm_multiprocessors = document["comm_multiprocessors"].integer<int>();
  machine.peer_access = document["peer_access"].boolean();
  machine.collectives = collectives_from_json(document["collectives"]);
  machine.copy_engine = curves_from_json(document["copy_engine"]);
  machine.store = curves_from_json(document["store"]);
  document.finish();
  validate(machine);
  return machine;
}

}  // namespace flashoverlap
