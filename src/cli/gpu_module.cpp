#include "cli/gpu_module.hpp"

#include "cli/files.hpp"
#include "flashoverlap/validate.hpp"

#ifdef FLASHOVERLAP_GPU_MODULE
#include <dlfcn.h>

#include <filesystem>
#endif

namespace flashoverlap::cli {

#ifdef FLASHOVERLAP_GPU_MODULE
namespace {

namespace fs = std::filesystem;

/// Next to this program, as in a build, or where it is installed.
fs::path module_file() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path built = folder / FLASHOVERLAP_GPU_MODULE;
  const fs::path installed =
      (folder / FLASHOVERLAP_GPU_MODULE_FOLDER / FLASHOVERLAP_GPU_MODULE).lexically_normal();
  for (const fs::path& file : {built, installed}) {
    if (fs::exists(file)) return file;
  }
  throw Error(fmt::format("what runs on GPUs is missing: there is neither {} nor {}", built.string(),
                          installed.string()));
}

}  // namespace

const GpuCommands& gpu_commands() {
  void* const module = dlopen(module_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = module == nullptr ? nullptr : dlsym(module, "flashoverlap_gpu_commands");
  if (symbol == nullptr) throw Error(fmt::format("what runs on GPUs cannot be loaded: {}", dlerror()));
  return *reinterpret_cast<decltype(&flashoverlap_gpu_commands)>(symbol)();
}
#else
const GpuCommands& gpu_commands() { throw Error("this flashoverlap was built without CUDA and NCCL"); }
#endif

void check_runs_on_gpus(const Problem& problem) {
  validate(problem);
  require(runs_on_gpus(problem.data_type), "data_type", name(problem.data_type),
          "must be bf16 or fp16 on GPUs");
  for (const auto& [extent, value] : {std::pair{"n", problem.n}, {"k", problem.k}})
    require(value % 8 == 0, extent, value, "must be a multiple of 8 on GPUs, which move 16 bytes at a time");
  require(problem.a_layout == OperandLayout::k_contiguous || problem.m % 8 == 0, "m", problem.m,
          "must be a multiple of 8 on GPUs where the rows of A are contiguous");
}

void check_plans_for_gpus(const std::vector<Plan>& plans, const std::string& file, int gpus) {
  const Problem& problem = plans.front().problem;
  require(gpus == problem.ranks, "--gpus", gpus,
          fmt::format("must be {}, the ranks of --plan", problem.ranks));
  naming_file("--plan", file, [&] {
    try {
      check_runs_on_gpus(problem);
    } catch (const InvalidArgument& refusal) {
      throw refusal.renamed("problem." + refusal.argument());
    }
    validate(plans);
  });
}

}  // namespace flashoverlap::cli
