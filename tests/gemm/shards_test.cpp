// What a kernel stores of a gathered operand, in bytes.
#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "plan/at.hpp"
#include "plan/kernel_messages.hpp"

namespace flashoverlap {
namespace {

constexpr Problem gather{.operation = Operation::all_gather_gemm, .m = 512, .n = 256, .k = 1000, .ranks = 2};

/// Of rank 0, where all matrices have rows this far apart.
std::vector<DeviceShard> shards_of(const Problem& problem, std::int64_t padding) {
  constexpr int all = 1 << 20;
  const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::store, .waves_per_group = all});
  GemmMemory memory{.buffers = std::vector<std::array<DeviceMatrix, buffer_count>>(plans.size())};
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (std::size_t role = 0; role < buffer_count; ++role) {
      const Buffer& buffer = plans[rank].buffers[role];
      memory.buffers[rank][role] = {nullptr, buffer.rows, buffer.cols, buffer.cols + padding};
    }
  }
  return resolve_shards(plans[0], memory, divide_messages(plans, 0).by_kernel);
}

std::int64_t bytes_of(const std::vector<DeviceShard>& shards) {
  std::int64_t bytes = 0;
  for (const DeviceShard& shard : shards) bytes += std::int64_t{shard.rows} * shard.row_bytes;
  return bytes;
}

constexpr std::int64_t stored_bytes = gather.m / 2 * gather.k * 2;

TEST(Shards, RowsWithoutGapsAreOneRow) {
  const std::vector<DeviceShard> shards = shards_of(gather, 0);
  ASSERT_FALSE(shards.empty());
  EXPECT_EQ(bytes_of(shards), stored_bytes);
  for (const DeviceShard& shard : shards) {
    EXPECT_EQ(shard.rows, 1);
    EXPECT_EQ(shard.row_segments,
              (shard.row_bytes + DeviceShard::segment_bytes - 1) / DeviceShard::segment_bytes);
  }
}

TEST(Shards, RowsWithPaddingStayRows) {
  const std::vector<DeviceShard> shards = shards_of(gather, 8);
  ASSERT_FALSE(shards.empty());
  EXPECT_EQ(bytes_of(shards), stored_bytes);
  for (const DeviceShard& shard : shards) {
    EXPECT_EQ(shard.row_bytes, gather.k * 2);
    EXPECT_EQ(shard.from_pitch, (gather.k + 8) * 2);
    EXPECT_EQ(shard.row_segments, 4);
  }
}

TEST(Shards, MoreThanTwoGigabytesStayRows) {
  Problem large = gather;
  large.m = 2 << 21;
  const std::vector<DeviceShard> shards = shards_of(large, 0);
  ASSERT_EQ(shards.size(), 1U);
  EXPECT_EQ(shards.front().rows, large.m / 2);
  EXPECT_EQ(shards.front().row_bytes, large.k * 2);
}

}  // namespace
}  // namespace flashoverlap
