/// What the module for GPUs consists of: see commands.hpp.
#pragma once

#include "cli/gpu/commands.hpp"

namespace flashoverlap::cli {

int bench_gemm(const GemmBench& bench);
int bench_rms_norm(const RmsNormBench& bench);
int bench_overlap(const OverlapBench& bench);
int check_on_gpus(const GpuCheck& check);

}  // namespace flashoverlap::cli
