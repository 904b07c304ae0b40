#include "measure/machine_measurement.hpp"

#include <fmt/chrono.h>

#include <ctime>

#include "cuda/properties.hpp"
#include "flashoverlap/error.hpp"
#include "measure/current_gpu.hpp"
#include "measure/kernel_costs.hpp"
#include "measure/transfer_curves.hpp"

namespace flashoverlap {

Machine measure_machine(const GpuRank& gpu, const std::function<void(std::string_view step)>& progress) {
  require(gpu.ranks() >= 2, "--gpus", gpu.ranks(), "must be at least 2, as transfers are measured");
  cudaDeviceProp properties{};
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, gpu.communicator().device()));
  Machine machine = current_machine(gpu.has_peer_access());
  machine.peer_access = gpu.has_peer_access();  // whatever the presets know of such GPUs
  machine.name = fmt::format("{} x {}, {}", gpu.ranks(), properties.name, gpu.fabric());
  machine.store_slowdown = machine.peer_access ? 1.1 : 1;  // fits reductions on 4 H100 and H200
  machine.sources = {fmt::format(
      "every field but store_slowdown, for which {} is assumed: measured on {}, {:%Y-%m-%d %H:%M} UTC",
      machine.store_slowdown, machine.name, fmt::gmtime(std::time(nullptr)))};
  progress("GEMM kernels");
  measure_kernels(gpu, machine);
  progress("signals");
  measure_signals(gpu, machine);
  progress("copies and stores");
  measure_copies(gpu, machine);
  progress("collectives");
  measure_collectives(gpu, machine);
  validate(machine);
  return machine;
}

}  // namespace flashoverlap
