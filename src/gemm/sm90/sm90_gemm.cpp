#include "gemm/sm90/sm90_gemm.hpp"

#include <algorithm>

#include "cuda/error.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/device/share_k.hpp"
#include "gemm/sm90/kernels.hpp"
#include "plan/message_rules.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

sm90::Kernel kernel_for(const Schedule& schedule, const Problem& problem) {
  using Finder = sm90::Kernel (*)(DataType, const sm90::Layouts&);
  constexpr std::array finders{
#define FLASHOVERLAP_TILE(rows, cols, cluster_rows) \
  std::pair<KernelTile, Finder>{{rows, cols, cluster_rows}, sm90::find_kernel<rows, cols, cluster_rows>},
#include "gemm/sm90/tiles.inc"
#undef FLASHOVERLAP_TILE
  };
  const auto* const found =
      std::ranges::find(finders, kernel_tile(schedule), &std::pair<KernelTile, Finder>::first);
  return found->second(problem.data_type, {problem.a_layout, problem.b_layout, blocks_of_b(problem) > 1});
}

}  // namespace

Sm90Gemm::Sm90Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : memory_(memory),
      options_(options),
      cluster_rows_(plan.schedule.cluster_rows),
      lists_(plan, memory, options) {
  const sm90::Kernel kernel = kernel_for(plan.schedule, plan.problem);
  kernel_ = kernel.function;
  threads_ = kernel.threads;
  shared_bytes_ = kernel.shared_bytes;
  FLASHOVERLAP_CUDA(
      cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_));

  ragged_ = sm90::ragged_tiles(plan);
  boxes_ = sm90::boxes_of(plan, ragged_, kernel.stored_rows);
  static_cast<TileListArguments&>(arguments_) = lists_.arguments();
  sm90::resolve_matrices(plan, memory, boxes_, arguments_);
  destinations_ = DeviceArray<sm90::Destination>(sm90::resolve_destinations(boxes_, memory));
  arguments_.destinations = destinations_.data();
  if (plan.schedule.share_k) {
    if (memory.shares == nullptr) {
      shares_ = DeviceArray<std::byte>(share_bytes(plan));
      shares_.set_bytes(0xFF);
    }
    sm90::resolve_shares(plan, memory.shares == nullptr ? shares_.data() : memory.shares, arguments_);
  }
  arguments_.out = sm90::resolve_destination(boxes_, own(BufferRole::out));
  std::vector<DeviceTile> tiles(lists_.room());
  resolve_tiles(plan, tiles);
  lists_.set(tiles);
}

void Sm90Gemm::rebind(BufferRole role, void* base) {
  DeviceMatrix& matrix = own(role);
  if (matrix.base == base) return;
  require(reinterpret_cast<std::uintptr_t>(base) % 16 == 0, fmt::format("address of {}", name(role)), base,
          "must be a multiple of 16 bytes");
  matrix.base = base;
  if (role == BufferRole::out) {
    arguments_.out = sm90::resolve_destination(boxes_, matrix);
  } else {
    sm90::bind_operand(boxes_, role, matrix, arguments_);
    bind_shards(role, matrix, arguments_);
  }
}

/// The caller's A has those that these routes send, and the TMA reads no others.
void Sm90Gemm::limit_rows_of_a(const Plan& plan) {
  DeviceMatrix& a = own(BufferRole::a);
  a.rows = least_rows_of_a(plan.problem, plan.rank);
  rebind(BufferRole::a, std::exchange(a.base, nullptr));
}

void Sm90Gemm::resolve_tiles(const Plan& plan, std::span<DeviceTile> tiles) {
  sm90::resolve_tiles(plan, ragged_, memory_, options_, boxes_, tiles, arguments_);
  blocks_ = launched_workers(plan, arguments_) * cluster_rows_;
}

void Sm90Gemm::replace_tiles(const Plan& plan, cudaStream_t stream) {
  limit_rows_of_a(plan);
  ragged_ = sm90::ragged_tiles(plan);
  resolve_tiles(plan, lists_.replacement(plan));
  lists_.replace(plan, stream);
}

void Sm90Gemm::launch(cudaStream_t stream) const {
  if (blocks_ == 0) return;
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (const int cluster = cluster_blocks(arguments_, cluster_rows_); cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  if (options_.begins_early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_));
  config.blockDim = dim3(static_cast<unsigned>(threads_));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes_);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = count;
  const void* parameters[] = {&arguments_};
  FLASHOVERLAP_CUDA(cudaLaunchKernelExC(&config, kernel_, const_cast<void**>(parameters)));
}

void Sm90Gemm::check_waits(cudaStream_t stream) const { lists_.check_waits(stream); }

std::vector<std::uint64_t> Sm90Gemm::tile_times() const {
  std::vector<std::uint64_t> times = lists_.tile_times(static_cast<std::int32_t>(ragged_.size()));
  for (std::size_t place = 0; place < times.size(); ++place) {
    if (ragged_[place].upper != none) times[static_cast<std::size_t>(ragged_[place].upper)] = times[place];
  }
  return times;
}

}  // namespace flashoverlap
