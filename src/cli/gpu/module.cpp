#include "cli/gpu/commands.hpp"

const flashoverlap::cli::GpuCommands* flashoverlap_gpu_commands() {
  using namespace flashoverlap::cli;
  static constexpr GpuCommands commands{
      .bench_gemm = bench_gemm,
      .bench_rms_norm = bench_rms_norm,
#ifdef FLASHOVERLAP_HAS_NCCL
      .bench_overlap = bench_overlap,
      .bench_experts = bench_experts,
      .bench_routes = bench_routes,
      .check = check_on_gpus,
      .tune = tune_on_gpus,
      .tune_machine = tune_machine,
#endif
  };
  return &commands;
}
