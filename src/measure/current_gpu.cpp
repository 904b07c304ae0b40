#include "measure/current_gpu.hpp"

#include <optional>
#include <utility>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

int count_gpus() {
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) throw Error("no GPU can be used here");
  return present;
}

Machine current_machine(std::string_view fabric) {
  const int compute_capability = current_compute_capability();
  const bool peer_access = fabric == "nvlink";
  std::optional<Machine> known;
  for (const std::string& name : preset_names()) {
    Machine machine = preset(name);
    if (machine.compute_capability != compute_capability) continue;
    if (!known || machine.peer_access == peer_access) known = std::move(machine);
  }
  require(known.has_value(), "GPU", compute_capability, "must be of a kind that a preset describes");
  known->multiprocessors = current_attribute(cudaDevAttrMultiProcessorCount);
  return *known;
}

}  // namespace flashoverlap
