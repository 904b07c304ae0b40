#include "measure/nearest_preset.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"

namespace flashoverlap {
namespace {

/// "nvidiageforcertx4090", which holds the preset's name "rtx4090".
std::string without_spaces(std::string_view name) {
  std::string letters;
  for (const char each : name) {
    if (std::isalnum(static_cast<unsigned char>(each)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
  }
  return letters;
}

/// "h100" of "h100-nvlink".
std::string kind_of(const std::string& preset) { return preset.substr(0, preset.find('-')); }

/// Larger is more alike.
auto likeness(const Machine& machine, const GpuKind& gpu) {
  return std::tuple(machine.compute_capability == gpu.compute_capability,
                    machine.peer_access == gpu.peer_access,
                    without_spaces(gpu.name).find(kind_of(machine.name)) != std::string::npos,
                    -std::abs(machine.multiprocessors - gpu.multiprocessors));
}

/// What the preset's GPU does by all of its multiprocessors is done by these.
void take_multiprocessors(Machine& machine, int multiprocessors) {
  machine.teraflops *= static_cast<double>(multiprocessors) / machine.multiprocessors;
  machine.multiprocessors = multiprocessors;
  machine.comm_multiprocessors = std::min(machine.comm_multiprocessors, multiprocessors - 1);
  const auto keep_caps = [=](auto& by_cap) {
    std::erase_if(by_cap, [=](const auto& each) { return each.first >= multiprocessors; });
  };
  keep_caps(machine.capped);
  keep_caps(machine.during_gemm);
  keep_caps(machine.capped_for_callers);
  keep_caps(machine.during_gemm_for_callers);
  keep_caps(machine.collective_slowdowns);
}

}  // namespace

Machine nearest_preset(const GpuKind& gpu) {
  const KernelFamily* const family = kernel_family(gpu.compute_capability);
  std::optional<Machine> nearest;
  for (const std::string& name : preset_names()) {
    Machine machine = preset(name);
    if (family == nullptr || kernel_family(machine.compute_capability) != family) continue;
    if (!nearest || likeness(machine, gpu) > likeness(*nearest, gpu)) nearest = std::move(machine);
  }
  require(nearest.has_value(), "GPU", gpu.compute_capability, "must be of a kind that a preset describes");
  nearest->compute_capability = gpu.compute_capability;
  take_multiprocessors(*nearest, gpu.multiprocessors);
  if (!gpu.peer_access) {
    nearest->peer_access = false;
    nearest->copy_engine.clear();
    nearest->store.clear();
  }
  return *nearest;
}

}  // namespace flashoverlap
