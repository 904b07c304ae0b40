#include <vector>

#include "cli/bench_overlap.hpp"
#include "cli/benchmarks.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap::cli {

Command bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure on the GPUs of this machine");
  bench->require_subcommand(0, 1);
  const std::vector benchmarks{
      bench_gemm_command(*bench),
      bench_rms_norm_command(*bench),
#ifdef FLASHOVERLAP_HAS_NCCL
      bench_overlap_command(*bench, Operation::gemm_all_reduce),
      bench_overlap_command(*bench, Operation::gemm_reduce_scatter),
      bench_overlap_command(*bench, Operation::gemm_all_to_all),
      bench_overlap_command(*bench, Operation::all_gather_gemm),
      bench_overlap_command(*bench, Operation::all_to_all_gemm),
#endif
  };
  return {bench, [benchmarks] {
            for (const Command& benchmark : benchmarks) {
              if (benchmark.parser->parsed()) return benchmark.run();
            }
            throw InvalidArgument("COMMAND", "(missing)", "must be a benchmark; see bench --help");
          }};
}

}  // namespace flashoverlap::cli
