#include "exec/host/tile_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

template <typename Value>
std::span<Value> row_of(std::span<Value> values, std::int32_t row, std::int32_t cols) {
  return values.subspan(static_cast<std::size_t>(row) * static_cast<std::size_t>(cols),
                        static_cast<std::size_t>(cols));
}

}  // namespace

void TileWorker::run(std::size_t index) {
  const HostRank& own = ranks_.at(rank_);
  const Plan& plan = own.plan();
  const Tile& tile = plan.tiles[index];
  const auto step = [&] { return fmt::format("rank {}, tile {} of group {}", rank_, index, tile.group); };

  ranks_.throw_if_stopped();
  ranks_.sleep(rank_, DelayPoint::tile_begin, index);
  for (std::int32_t part = 0; part < start_waits(plan, tile); ++part)
    ranks_.wait(rank_, tile.start_wait + part, step);
  gemm_.begin(tile.rows, tile.cols);
  if (!tile.only_adds) multiply(tile);
  const std::span<float> accumulator = gemm_.tile();
  if (tile.store_wait != none) ranks_.wait(rank_, tile.store_wait, step);
  if (tile.addend_row != none) add_partials(tile, accumulator);
  store(tile, accumulator);
  ranks_.sleep(rank_, DelayPoint::tile_raise, index);
  for_each_raise(plan, tile, [&](const Raise& raise) { ranks_.raise(raise, plan.schedule.cluster_rows); });
  ranks_.at(rank_).tiles_done().raise(0, 1);
  // Relaxed, so that it orders nothing: see HostCounters::raise.
  if (std::atomic<std::int64_t>* const done = ranks_.options().tiles_done)
    done->fetch_add(1, std::memory_order_relaxed);
}

void TileWorker::multiply(const Tile& tile) {
  const RunProgress::Work work(ranks_.progress());
  const HostRank& own = ranks_.at(rank_);
  const Problem& problem = own.plan().problem;
  for_each_part_of_k(own.plan(), tile, [&](const PartOfK& part) {
    gemm_.add({own.readable(part.a_buffer), problem.a_layout, part.a_row, part.a_k},
              {own.readable(part.b_buffer), problem.b_layout, part.b_row, part.b_k}, part.depth);
  });
}

void TileWorker::add_partials(const Tile& tile, std::span<float> accumulator) {
  const HostRank& own = ranks_.at(rank_);
  const Matrix& inbox = own.readable(BufferRole::inbox);
  const Addends& addends = own.plan().addends;
  std::vector<float> sum(static_cast<std::size_t>(tile.cols));
  partial_.resize(sum.size());
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const std::span<float> own_values = row_of(accumulator, row, tile.cols);
    const auto add = [&](std::span<const float> values) {
      std::ranges::transform(sum, values, sum.begin(), std::plus());
    };
    std::ranges::fill(sum, 0.0f);
    for (std::int32_t partial = 0; partial < addends.count; ++partial) {
      if (partial == rank_ && !tile.only_adds) add(own_values);
      inbox.read(tile.addend_row + partial * addends.row_stride + row, tile.col, partial_);
      add(partial_);
    }
    if (addends.count <= rank_) add(own_values);
    std::ranges::copy(sum, own_values.begin());
  }
}

void TileWorker::store(const Tile& tile, std::span<const float> accumulator) {
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const RowTarget target = stored_at(ranks_.at(rank_).plan(), tile, row);
    const int first = target.rank == every_rank ? 0 : target.rank;
    const int last = target.rank == every_rank ? ranks_.size() - 1 : target.rank;
    for (int rank = first; rank <= last; ++rank) {
      ranks_.at(rank)
          .writable(tile.buffer)
          .write(target.row, tile.store_col, row_of(accumulator, row, tile.cols));
    }
  }
}

}  // namespace flashoverlap
