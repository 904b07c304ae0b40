/// The seam between the command and its module for GPUs, which is loaded when it is asked for: what is to be
/// done, as plain data that the command has checked, and the functions that do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/layer_pass.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/reader.hpp"

namespace flashoverlap::cli {

/// A problem and how it is overlapped, or plans that are made already.
struct GpuCase {
  Problem problem;
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
  int rounds = 1;
  bool own_result = false;  ///< see OperatorOptions
  bool pitched = false;     ///< see PlanCheck
  int shots = 0;
  std::vector<Plan> plans;  ///< of all ranks; empty: made for the GPUs
};

/// Operators against cuBLASLt + NCCL, and against fp64.
struct GpuCheck {
  int gpus = 1;
  std::vector<GpuCase> cases;
  int runs = 1;
  int delays = 0;  ///< µs, at most, before each run of a rank
  std::int64_t seed = 0;
  int wait_limit = 30;         ///< seconds that a rank waits for the others at most
  bool graph = false;          ///< also replay a captured run as often
  bool skips_refused = false;  ///< strategies that these GPUs refuse
};

/// GEMM kernels against cuBLASLt.
struct GemmBench {
  std::vector<std::int64_t> m{1024, 2048, 4096, 8192, 16384};
  std::vector<int> ranks{2, 4, 8};
  std::vector<LayerPass> passes{LayerPass::forward};
  std::vector<int> leave_free;
  int repetitions = 15;
  std::string json;  ///< file; empty: none
};

/// One rank's GEMM of several experts against cuBLASLt.
struct ExpertsBench {
  std::vector<Problem> problems;
  int repetitions = 15;
  std::string json;
};

/// RMSNorm of tiled results against natural ones.
struct RmsNormBench {
  std::vector<std::int64_t> m{1024, 2048, 4096, 8192, 16384};
  std::vector<std::int64_t> cols{4096, 8192, 16384};
  bool residual = false;
  int repetitions = 15;
  std::string json;
};

/// Operators against cuBLASLt and NCCL.
struct OverlapBench {
  int gpus = 0;
  std::vector<Problem> problems;  ///< of one operation
  /// Each strategy is measured with each of the layouts that it supports.
  std::vector<Strategy> strategies;
  std::vector<Layout> layouts;
  std::vector<int> comm_multiprocessors;  ///< to try; empty: by fabric
  std::vector<Plan> plans;                ///< of all ranks, for the only problem; empty: made for the GPUs
  int repetitions = 0;                    ///< 0: as many as take half a second
  bool tuned = false;                     ///< also what the tuner finds
  bool rms_norm = false;                  ///< a residual and an RMSNorm follow each result
  std::string json;
  std::string timeline;  ///< file of a picture
  std::string save;      ///< file of the fastest plans
};

/// Problems to be tuned anew.
struct TuneRequest {
  int gpus = 0;
  std::vector<Problem> problems;
  Reader reader = Reader::caller;
  std::string cache_directory;  ///< empty: the usual one
};

/// The machine to be measured.
struct MachineRequest {
  int gpus = 0;
  std::string cache_directory;  ///< empty: the usual one
  std::string save;             ///< another file for it; empty: none
};

/// What it costs the host to give operators new routes.
struct RoutesBench {
  struct Routed {
    Problem problem;
    std::vector<std::vector<std::vector<std::int32_t>>> routes;  ///< each a `Problem::expert_rows`
  };

  int gpus = 0;
  std::vector<Routed> operations;
  std::vector<Strategy> strategies;
  int repetitions = 200;
  std::string json;
};

/// Each prints its results and returns the exit status.
struct GpuCommands {
  int (*bench_gemm)(const GemmBench&) = nullptr;
  int (*bench_rms_norm)(const RmsNormBench&) = nullptr;
  int (*bench_overlap)(const OverlapBench&) = nullptr;  ///< null, like those below, without NCCL
  int (*bench_experts)(const ExpertsBench&) = nullptr;
  int (*bench_routes)(const RoutesBench&) = nullptr;
  int (*check)(const GpuCheck&) = nullptr;
  int (*tune)(const TuneRequest&) = nullptr;
  int (*tune_machine)(const MachineRequest&) = nullptr;
};

// Within the module.
int bench_gemm(const GemmBench& bench);
int bench_rms_norm(const RmsNormBench& bench);
int bench_overlap(const OverlapBench& bench);
int bench_experts(const ExpertsBench& bench);
int bench_routes(const RoutesBench& bench);
int check_on_gpus(const GpuCheck& check);
int tune_on_gpus(const TuneRequest& request);
int tune_machine(const MachineRequest& request);

}  // namespace flashoverlap::cli

/// The module's only symbol.
extern "C" const flashoverlap::cli::GpuCommands* flashoverlap_gpu_commands();
