#include "cli/gpu_module.hpp"

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

}  // namespace flashoverlap::cli
