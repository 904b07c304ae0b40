#include <fmt/ranges.h>

#include <charconv>
#include <concepts>
#include <nlohmann/json.hpp>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t most_points = 4096;
constexpr std::size_t most_sources = 256;
constexpr std::size_t most_kernels = 256;

/// The keys of a kernel, and of a machine document, listed once for the writer and the reader.
template <typename Kernel>
requires std::same_as<std::remove_const_t<Kernel>, KernelCosts>
void visit_keys(const auto& visit, Kernel& kernel) {
  visit("tile_rows", kernel.tile.rows);
  visit("tile_cols", kernel.tile.cols);
  visit("cluster_rows", kernel.tile.cluster_rows);
  visit("b_layout", kernel.b_layout);
  visit("wave", kernel.wave);
  visit("lone_wave", kernel.lone_wave);
}

template <typename Document>
requires std::same_as<std::remove_const_t<Document>, Machine>
void visit_keys(const auto& visit, Document& machine) {
  visit("name", machine.name);
  visit("sources", machine.sources);
  visit("compute_capability", machine.compute_capability);
  visit("multiprocessors", machine.multiprocessors);
  visit("kernels", machine.kernels);
  visit("teraflops", machine.teraflops);
  visit("tile_microseconds", machine.tile_microseconds);
  visit("throttled", machine.throttled);
  visit("copy_slowdown", machine.copy_slowdown);
  visit("store_slowdown", machine.store_slowdown);
  visit("collective_slowdowns", machine.collective_slowdowns);
  visit("gemm_launch_microseconds", machine.gemm_launch_microseconds);
  visit("launch_microseconds", machine.launch_microseconds);
  visit("signal_microseconds", machine.signal_microseconds);
  visit("memory_gigabytes_per_second", machine.memory_gigabytes_per_second);
  visit("comm_multiprocessors", machine.comm_multiprocessors);
  visit("peer_access", machine.peer_access);
  visit("collectives", machine.collectives);
  visit("capped", machine.capped);
  visit("during_gemm", machine.during_gemm);
  visit("capped_for_callers", machine.capped_for_callers);
  visit("during_gemm_for_callers", machine.during_gemm_for_callers);
  visit("copy_engine", machine.copy_engine);
  visit("store", machine.store);
  visit("block_store_gigabytes_per_second", machine.block_store_gigabytes_per_second);
}

nlohmann::ordered_json to_json(const auto& field) { return field; }
nlohmann::ordered_json to_json(OperandLayout layout) { return name(layout); }

nlohmann::ordered_json to_json(const Curve& curve) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const Curve::Point& point : curve.points)
    points.push_back({{"size", point.size}, {"microseconds", point.microseconds}});
  return points;
}

nlohmann::ordered_json to_json(const std::vector<KernelCosts>& kernels) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const KernelCosts& kernel : kernels) {
    nlohmann::ordered_json& object = json.emplace_back();
    visit_keys([&](const char* key, const auto& field) { object[key] = to_json(field); }, kernel);
  }
  return json;
}

nlohmann::ordered_json to_json(const CurvesByRanks& curves) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [ranks, curve] : curves) json[std::to_string(ranks)] = to_json(curve);
  return json;
}

template <typename Measured>
nlohmann::ordered_json to_json(const std::map<MessageKind, Measured>& by_kind) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [kind, measured] : by_kind) json[std::string(name(kind))] = to_json(measured);
  return json;
}

template <typename Measured>
nlohmann::ordered_json to_json(const std::map<int, std::map<MessageKind, Measured>>& by_cap) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [cap, measured] : by_cap) json[std::to_string(cap)] = to_json(measured);
  return json;
}

Curve::Point point_from_json(const JsonValue& value) {
  JsonObject object(value);
  const Curve::Point point{object["size"].number(), object["microseconds"].number()};
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

void read(const JsonValue& value, OperandLayout& layout) { layout = value.enumerator<OperandLayout>(); }

void read(const JsonValue& value, Curve& curve) { curve.points = value.array(point_from_json, most_points); }

void read(const JsonValue& value, std::vector<KernelCosts>& kernels) {
  const auto kernel_from_json = [](const JsonValue& each) {
    KernelCosts kernel;
    JsonObject object(each);
    visit_keys([&](const char* key, auto& field) { read(object[key], field); }, kernel);
    object.finish();
    return kernel;
  };
  kernels = value.array(kernel_from_json, most_kernels);
}

/// The number that a key is: of ranks, or of multiprocessors.
int number_from_key(std::string_view key, const JsonValue& value, std::string_view what) {
  int number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc{} || end != key.data() + key.size() || key != std::to_string(number))
    value.refuse(fmt::format("must stand under the number of {} it holds for", what));
  return number;
}

void read(const JsonValue& value, CurvesByRanks& curves) {
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& points) {
    read(points, curves[number_from_key(key, points, "ranks")]);
  });
}

template <typename Measured>
void read(const JsonValue& value, std::map<MessageKind, Measured>& by_kind) {
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& measured) {
    const auto kind = from_name<MessageKind>(key);
    if (!kind) measured.refuse("is not a known key");
    read(measured, by_kind[*kind]);
  });
}

template <typename Measured>
void read(const JsonValue& value, std::map<int, std::map<MessageKind, Measured>>& by_cap) {
  JsonObject(value).for_each([&](std::string_view key, const JsonValue& measured) {
    read(measured, by_cap[number_from_key(key, measured, "multiprocessors")]);
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
