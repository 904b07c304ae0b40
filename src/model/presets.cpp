#include <fmt/ranges.h>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"

namespace flashoverlap {

namespace {

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
