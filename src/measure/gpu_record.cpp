#include "measure/gpu_record.hpp"

#include <cublasLt.h>
#include <fmt/chrono.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>

#include "cuda/error.hpp"
#include "measure/current_gpu.hpp"

namespace flashoverlap {
namespace {

/// Driver, clock, temperature and power as nvidia-smi shows them; empty where there is none.
std::string gpu_state() {
  const std::unique_ptr<FILE, int (*)(FILE*)> query(
      popen("nvidia-smi -i 0 --query-gpu=driver_version,clocks.sm,temperature.gpu,power.draw "
            "--format=csv,noheader",
            "r"),
      pclose);
  std::array<char, 256> line{};
  if (!query || std::fgets(line.data(), line.size(), query.get()) == nullptr) return "";
  std::string state(line.data());
  state.erase(state.find_last_not_of('\n') + 1);
  return state;
}

constexpr auto state_key = "driver_clock_temperature_power";

}  // namespace

nlohmann::ordered_json gpu_machine() {
  count_gpus();
  cudaDeviceProp properties{};
  int runtime = 0;
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, 0));
  FLASHOVERLAP_CUDA(cudaRuntimeGetVersion(&runtime));
  return {{"date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
          {"gpu", properties.name},
          {"multiprocessors", properties.multiProcessorCount},
          {"cuda_runtime", runtime},
          {"cublaslt", cublasLtGetVersion()},
          {"commit", FLASHOVERLAP_COMMIT},
          {state_key, {{"before", gpu_state()}}}};
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  for (std::string argument; std::getline(file, argument, '\0');)
    line += (line.empty() ? "" : " ") + argument;
  return line;
}

void note_state_after(nlohmann::ordered_json& machine) { machine[state_key]["after"] = gpu_state(); }

}  // namespace flashoverlap
