#include "measure/lone_gemm.hpp"

#include "cuda/random_fill.hpp"

namespace flashoverlap {
namespace {

Plan without_communication(Plan plan) {
  const Shape c = gemm_shape(plan.problem, plan.rank);
  plan.buffer(BufferRole::out) = {c.rows, c.cols};
  plan.addends = {};
  plan.row_map.clear();
  std::erase_if(plan.tiles, [](const Tile& tile) { return tile.only_adds; });
  for (Tile& tile : plan.tiles) {
    tile.buffer = BufferRole::out;
    tile.rank = plan.rank;
    tile.store_row = tile.row;
    tile.store_col = tile.col;
    tile.row_map = tile.part_rows = tile.addend_row = tile.start_wait = tile.store_wait = none;
    tile.raise = {};
  }
  return plan;
}

}  // namespace

LoneGemm::LoneGemm(const Plan& plan, cudaStream_t stream)
    : gathered_(elements_of(plan.buffer(BufferRole::gathered))) {
  const Plan alone = without_communication(plan);
  const auto ranks = static_cast<std::size_t>(plan.problem.ranks);
  const auto rank = static_cast<std::size_t>(plan.rank);
  result_ = DeviceArray<Element>(elements_of(alone.buffer(BufferRole::out)));
  FLASHOVERLAP_CUDA(fill_random(gathered_.data(), gathered_.size(), plan.problem.data_type, rank, stream));
  GemmMemory memory{.buffers = std::vector<std::array<DeviceMatrix, buffer_count>>(ranks),
                    .counters = std::vector<std::uint32_t*>(ranks)};
  const auto describe = [&](BufferRole role, void* base) {
    const Buffer& shape = alone.buffer(role);
    memory.buffers[rank][static_cast<std::size_t>(role)] = {base, shape.rows, shape.cols, shape.cols};
  };
  describe(BufferRole::a, nullptr);
  describe(BufferRole::b, nullptr);
  describe(BufferRole::gathered, gathered_.data());
  describe(BufferRole::out, result_.data());
  gemm_ = make_gemm_kernel(alone, memory, {.counts = false});
}

void LoneGemm::launch(const GpuOperands& operands, cudaStream_t stream) {
  gemm_->rebind(BufferRole::a, operands.a.data());
  gemm_->rebind(BufferRole::b, operands.b.data());
  gemm_->launch(stream);
}

}  // namespace flashoverlap
