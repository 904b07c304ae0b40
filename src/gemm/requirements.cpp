#include "gemm/requirements.hpp"

#include <algorithm>
#include <array>

#include "data_type/gpu_types.hpp"
#include "flashoverlap/error.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// Elements of 16 bytes, which the TMA and 16-byte loads move at a time.
constexpr int aligned_elements = 8;

std::string tiles_of(const KernelFamily& family) {
  std::string list;
  for (const KernelTile& tile : family.tiles) {
    list += fmt::format("{}{}x{}", list.empty() ? "" : ", ", tile.rows, tile.cols);
    if (tile.cluster_rows > 1) list += fmt::format(" in clusters of {}", tile.cluster_rows);
  }
  return list;
}

void require_tile(const Schedule& schedule, const KernelFamily& family) {
  const KernelTile wanted = kernel_tile(schedule);
  require(has_kernel(family, schedule), "tile",
          fmt::format("{}x{} in clusters of {}", wanted.rows, wanted.cols, wanted.cluster_rows),
          fmt::format("has no {} kernel; there are {}", family.name, tiles_of(family)));
}

void require_operand(const Plan& plan, BufferRole role) {
  const std::int64_t contiguous = plan.buffer(role).cols;
  require(contiguous % aligned_elements == 0, fmt::format("contiguous extent of {}", name(role)), contiguous,
          "must be a multiple of 8 elements on GPUs, which load rows of multiples of 16 bytes");
}

void require_start(std::string_view what, OperandLayout layout, std::int32_t row) {
  require(
      layout == OperandLayout::k_contiguous || row % aligned_elements == 0, what, row,
      "must be a multiple of 8 where the operand's rows are contiguous, as loads start at multiples of 16 "
      "bytes");
}

void require_steps(const Plan& plan, const KernelFamily& family) {
  if (plan.wait_depth == none) return;
  require(plan.schedule.step_depth == family.step_depth, "step_depth", plan.schedule.step_depth,
          fmt::format("must be {}, the columns of k that {} kernels multiply at a time", family.step_depth,
                      family.name));
  require(plan.wait_depth % family.step_depth == 0, "wait_depth", plan.wait_depth,
          fmt::format("must be a multiple of step_depth = {}", family.step_depth));
}

void require_shareable(const Plan& plan, const KernelFamily& family) {
  if (!plan.schedule.share_k) return;
  require(family.shares_k, "share_k", true, fmt::format("must be false for {} kernels", family.name));
  require(plan.schedule.step_depth == family.step_depth, "step_depth", plan.schedule.step_depth,
          fmt::format("must be {} where workers share k", family.step_depth));
  const bool one_part = !plan.own_k_first && plan.a_blocks.count == 1 && plan.wait_depth == none;
  require(one_part, "share_k", true, "must be false where k comes in parts");
  require(plan.problem.capacity == 0, "share_k", true, "must be false where routes change");
}

/// Rows of several tiles that are stored by one row map.
void require_one_mapped_buffer(const Plan& plan) {
  const Tile* mapped = nullptr;
  for (const Tile& tile : plan.tiles) {
    if (tile.row_map == none) continue;
    if (mapped == nullptr) mapped = &tile;
    require(tile.buffer == mapped->buffer, "tiles", "with row maps into several buffers",
            "must store mapped rows into one buffer only");
  }
}

}  // namespace

const KernelFamily& require_family(int compute_capability) {
  const KernelFamily* const family = kernel_family(compute_capability);
  const int oldest = std::ranges::min(kernel_families(), {}, &KernelFamily::first_compute_capability)
                         .first_compute_capability;
  require(family != nullptr, "compute_capability", compute_capability,
          fmt::format("there are kernels for GPUs of {} and newer only", oldest));
  return *family;
}

void require_kernel(const Plan& plan, const KernelFamily& family) {
  if (!runs_on_gpus(plan.problem.data_type)) refuse_on_gpus(plan.problem.data_type);
  require_tile(plan.schedule, family);
  require_operand(plan, BufferRole::a);
  require_operand(plan, BufferRole::b);
  require(blocks_of_b(plan.problem) == 1 || plan.problem.a_layout == OperandLayout::k_contiguous, "a_layout",
          name(plan.problem.a_layout),
          "must be k_contiguous on GPUs where B is that of several experts with its rows contiguous");
  require_steps(plan, family);
  require_shareable(plan, family);
  for (const Tile& tile : plan.tiles) {
    if (tile.only_adds) continue;
    require_start("first row of a tile's A", plan.problem.a_layout, tile.a_row);
    require_start("first row of a tile's B", plan.problem.b_layout, tile.b_row);
  }
  const auto waits = [](const Tile& tile) { return tile.start_wait != none; };
  const auto raises = [](const Tile& tile) { return tile.raise.rank != none; };
  require(
      std::ranges::none_of(plan.tiles, waits) || std::ranges::none_of(plan.tiles, raises), "tiles",
      "some wait for operands, some raise counters",
      "must not do both: a tile is stored after the next one's first products, which may wait for its raise");
  require_one_mapped_buffer(plan);
}

}  // namespace flashoverlap
