#include "gemm/sm80/sm80_gemm.hpp"

#include <algorithm>

#include "cuda/properties.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/sm80/kernels.hpp"
#include "gemm/sm80/resolve_arguments.hpp"

namespace flashoverlap {
namespace {

/// Shared memory that a block may have on the current GPU, or on the one whose kernels it runs.
int shared_memory_room() {
  constexpr int little = 99 * 1024;
  const int capability = kernel_compute_capability(current_compute_capability());
  const int room = current_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return capability == 86 || capability == 89 ? std::min(room, little) : room;
}

/// Of the two sizes that there are of each tile, the larger one that fits.
sm80::Kernel ampere_kernel_for(const Schedule& schedule, const Problem& problem) {
  using Finder = sm80::Kernel (*)(DataType, OperandLayout, OperandLayout);
  struct Line {
    KernelTile tile;
    Finder find;
    Finder find_roomy;
  };
  constexpr std::array lines{
#define FLASHOVERLAP_TILE(rows, cols, depth, stages, roomy_depth, roomy_stages) \
  Line{{rows, cols, 1},                                                         \
       sm80::find_kernel<rows, cols, depth, stages>,                            \
       sm80::find_kernel<rows, cols, roomy_depth, roomy_stages>},
#include "gemm/sm80/tiles.inc"
#undef FLASHOVERLAP_TILE
  };
  const auto* const line = std::ranges::find(lines, kernel_tile(schedule), &Line::tile);
  const auto kernel_by = [&](Finder find) {
    return find(problem.data_type, problem.a_layout, problem.b_layout);
  };
  const sm80::Kernel roomy = kernel_by(line->find_roomy);
  return roomy.shared_bytes <= shared_memory_room() ? roomy : kernel_by(line->find);
}

}  // namespace

Sm80Gemm::Sm80Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : memory_(memory),
      options_(options),
      destinations_(resolve_destinations(memory)),
      lists_(plan, memory, options) {
  const sm80::Kernel kernel = ampere_kernel_for(plan.schedule, plan.problem);
  kernel_ = kernel.function;
  threads_ = kernel.threads;
  shared_bytes_ = kernel.shared_bytes;
  FLASHOVERLAP_CUDA(
      cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_));

  static_cast<TileListArguments&>(arguments_) = lists_.arguments();
  sm80::resolve_matrices(plan, memory, arguments_);
  arguments_.destinations = destinations_.data();
  std::vector<DeviceTile> tiles(lists_.room());
  resolve_tiles(plan, tiles);
  lists_.set(tiles);
}

void Sm80Gemm::rebind(BufferRole role, void* base) {
  DeviceMatrix& matrix = own(role);
  if (matrix.base == base) return;
  DeviceMatrix moved = matrix;
  moved.base = base;
  if (role == BufferRole::out) {
    require(reinterpret_cast<std::uintptr_t>(base) % 16 == 0, "address of out", base,
            "must be a multiple of 16 bytes");
    arguments_.out = resolve_destination(moved);
  } else {
    sm80::bind_operand(role, moved, arguments_);
    bind_shards(role, moved, arguments_);
  }
  matrix = moved;
}

/// Into the first of `tiles`, and what goes with them.
void Sm80Gemm::resolve_tiles(const Plan& plan, std::span<DeviceTile> tiles) {
  flashoverlap::resolve_tiles(plan, memory_, options_, tiles);
  blocks_ = launched_workers(plan, arguments_);
  count_tiles(plan, plan.tiles.size(), arguments_);
}

void Sm80Gemm::replace_tiles(const Plan& plan, cudaStream_t stream) {
  resolve_tiles(plan, lists_.replacement(plan));
  lists_.replace(plan, stream);
}

void Sm80Gemm::launch(cudaStream_t stream) const {
  if (blocks_ == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_));
  config.blockDim = dim3(static_cast<unsigned>(threads_));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes_);
  config.stream = stream;
  const void* parameters[] = {&arguments_};
  FLASHOVERLAP_CUDA(cudaLaunchKernelExC(&config, kernel_, const_cast<void**>(parameters)));
}

void Sm80Gemm::check_waits(cudaStream_t stream) const { lists_.check_waits(stream); }

std::vector<std::uint64_t> Sm80Gemm::tile_times() const { return lists_.tile_times(arguments_.tile_count); }

}  // namespace flashoverlap
