/// A plan: what one rank does for one problem, as two lists that meet only at counters.
///
/// The *tile list* is worked off in order by the workers of the GEMM (any number of them); the *message list*
/// is worked off in order by the communication stream. Copies to peers begin there in their turn and then
/// follow each other on a stream of their own, beside the messages that come after them. Plain data, no
/// behaviour: planners write it, `validate` proves it, executors run it, `simulate` predicts it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

inline constexpr std::int32_t none = -1;        ///< no counter, no addend, no row map
inline constexpr std::int32_t every_rank = -2;  ///< a tile stored at the same place on every rank

/// Matrices that a plan speaks of. `a`, `b` and `out` are the caller's (`out` is the library's where peers
/// write it); the others are workspace.
enum class BufferRole : std::uint8_t {
  a,         ///< operand A, or the rank's part of it
  b,         ///< operand B, or the rank's shard of it
  out,       ///< the result
  staging,   ///< tiles on their way to a collective or a peer
  inbox,     ///< partial results that peers stored here
  gathered,  ///< the operand that was gathered or exchanged
};
inline constexpr int buffer_count = 6;

/// Row-major, without padding between rows. Absent where rows or cols is 0.
struct Buffer {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool peer_written = false;  ///< a peer stores into it directly: it must be peer memory
  bool operator==(const Buffer&) const = default;
};

enum class CounterRole : std::uint8_t {
  tiles,    ///< raised by this rank's tiles
  arrival,  ///< raised when data from peers is in memory
  credit,   ///< raised by a peer whose run has begun: its buffers may be written
};

/// A counter in this rank's memory. It is zero before and after a run, and reaches exactly `target` in
/// between: every wait waits for `target`.
struct Counter {
  CounterRole role = CounterRole::tiles;
  std::int32_t group = none;  ///< for reports
  std::int32_t peer = none;   ///< for reports
  std::int32_t target = 0;
  bool operator==(const Counter&) const = default;
};

/// A counter of any rank. Guarantee: whoever sees the raise sees every write that the raiser made or had seen
/// before.
struct Raise {
  std::int32_t rank = none;  ///< `none`: nothing is raised
  std::int32_t counter = none;
  bool operator==(const Raise&) const = default;
};

/// One output tile, in the order of computation.
struct Tile {
  std::int32_t row = 0;  ///< origin and extent in C
  std::int32_t col = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  BufferRole a_buffer = BufferRole::a;  ///< where the rows of A are read
  BufferRole b_buffer = BufferRole::b;  ///< where the rows of B are read
  std::int32_t a_row = 0;
  std::int32_t b_row = 0;
  BufferRole buffer = BufferRole::out;  ///< where the tile is stored
  std::int32_t rank = 0;                ///< whose buffer: this rank, a peer, or `every_rank`
  std::int32_t store_row = 0;
  std::int32_t store_col = 0;
  std::int32_t row_map =
      none;  ///< if not `none`: row i goes to Plan::row_map[row_map + i] instead of rank, store_row + i
  /// If not `none`: the tile is cut into parts of this many rows that lie `part_stride` rows apart in the
  /// buffer, so row i goes to store_row + (i / part_rows) · part_stride + i % part_rows.
  std::int32_t part_rows = none;
  std::int32_t part_stride = 0;
  std::int32_t addend_row = none;  ///< if not `none`: partial results are added, see `Plan::addends`
  std::int32_t start_wait = none;  ///< counter of this rank, reached before operands are read; see
                                   ///< `Plan::wait_depth`
  std::int32_t store_wait =
      none;     ///< counter of this rank, reached before addends are read and the tile is stored
  Raise raise;  ///< by `Schedule::cluster_rows`, once the stored tile is visible
  std::int32_t group = 0;
  bool operator==(const Tile&) const = default;
};

/// Where one row of a tile is stored.
struct RowTarget {
  std::int32_t rank = 0;
  std::int32_t row = 0;
  bool operator==(const RowTarget&) const = default;
};

/// Partial results for a tile's epilogue: partial j of `count` lies in the inbox at row addend_row +
/// j·row_stride and column Tile::col. Partial j comes from rank j, or j + 1 from this rank on: sums are made
/// in fp32 in rank order, the rank's own accumulator in its place.
struct Addends {
  std::int32_t count = 0;
  std::int32_t row_stride = 0;
  bool operator==(const Addends&) const = default;
};

/// Operand A as `count` matrices of k/count columns below each other: column j of row i lies at row
/// i + (j / (k/count))·row_stride. count = 1 is an ordinary matrix.
struct ABlocks {
  std::int32_t count = 1;
  std::int32_t row_stride = 0;
  bool operator==(const ABlocks&) const = default;
};

/// Whole rows of a buffer.
struct Region {
  BufferRole buffer = BufferRole::out;
  std::int32_t row = 0;
  std::int32_t rows = 0;
  bool operator==(const Region&) const = default;
};

enum class MessageKind : std::uint8_t {
  all_reduce,      ///< sums `source` over all ranks, in place (destination = source)
  reduce_scatter,  ///< source has ranks·rows of destination; part r of the sum goes to rank r
  all_gather,      ///< destination has ranks·rows of source, in rank order
  exchange,        ///< `sends` and `receives` as one group; a pair of ranks matches them in order
  copy,            ///< source to destination on `peer` (or this rank), by a copy engine
  store,           ///< the same by copy blocks on multiprocessors
  signal,          ///< no data, only waits and raises
};

struct Wait {
  std::int32_t counter = 0;  ///< of this rank
  bool reset = false;        ///< set the counter to zero once it is reached
  bool operator==(const Wait&) const = default;
};

/// One side of a point-to-point transfer.
struct Part {
  std::int32_t peer = 0;
  Region region;
  bool operator==(const Part&) const = default;
};

/// One step of the communication: waits, then the transfer, then the raises.
struct Message {
  MessageKind kind = MessageKind::signal;
  bool after_tiles = false;   ///< also waits until every tile of this rank is done
  std::int32_t group = none;  ///< for reports and pictures
  std::vector<Wait> waits;
  Region source;
  Region destination;
  std::int32_t peer = none;  ///< owner of `destination` for copy and store
  std::int32_t col = 0;      ///< copy and store move these columns of both regions only,
  std::int32_t cols = none;  ///< or all where this is `none`
  std::vector<Part> sends;
  std::vector<Part> receives;
  std::vector<Raise> raises;  ///< by one each, once the transferred data is visible
  bool operator==(const Message&) const = default;
};

/// What a run of output rows is: rows of C of `rank`, or of the sum over all ranks where rank is `none`, from
/// column `col` on.
struct RowOrigin {
  std::int32_t rank = none;
  std::int32_t row = 0;
  std::int32_t rows = 0;
  std::int32_t col = 0;
  bool operator==(const RowOrigin&) const = default;
};

/// How to read a `tiled` result: element (i, j) of the natural result lies in the buffer at row
/// first_row[(i / block_rows) · column_blocks + j / block_cols] + i % block_rows and column j % block_cols.
struct Reorder {
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  std::vector<std::int32_t> first_row;  ///< empty: the result is natural
  bool operator==(const Reorder&) const = default;
};

/// The result in buffer `out`: its natural shape, what its rows are, and how to read it.
struct Output {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<RowOrigin> origins;  ///< in order of the output rows
  Reorder reorder;
  bool operator==(const Output&) const = default;
};

struct Plan {
  Problem problem;
  Schedule schedule;
  std::int32_t rank = 0;
  std::array<Buffer, buffer_count> buffers;
  ABlocks a_blocks;
  /// If not `none`: a tile's start_wait stands for so many columns of k, the counter behind it for as many
  /// more, and so on: columns are not read before their counter is reached, so a tile begins with those that
  /// have arrived.
  std::int32_t wait_depth = none;
  Addends addends;
  std::vector<Counter> counters;
  std::vector<Tile> tiles;
  std::vector<RowTarget> row_map;
  std::vector<Message> messages;
  Output output;

  Buffer& buffer(BufferRole role) { return buffers[static_cast<std::size_t>(role)]; }
  const Buffer& buffer(BufferRole role) const { return buffers[static_cast<std::size_t>(role)]; }
  bool operator==(const Plan&) const = default;
};

/// Where row `row` of a tile (counted from its first) is stored.
inline RowTarget stored_at(const Plan& plan, const Tile& tile, std::int32_t row) {
  if (tile.row_map != none) return plan.row_map[static_cast<std::size_t>(tile.row_map + row)];
  if (tile.part_rows == none) return {tile.rank, tile.store_row + row};
  return {tile.rank, tile.store_row + row / tile.part_rows * tile.part_stride + row % tile.part_rows};
}

/// How many counters, from its start_wait on, a tile waits for in turn before it reads its operands.
inline std::int32_t start_waits(const Plan& plan, const Tile& tile) {
  if (tile.start_wait == none) return 0;
  if (plan.wait_depth == none) return 1;
  return static_cast<std::int32_t>((plan.problem.k + plan.wait_depth - 1) / plan.wait_depth);
}

/// "counter 3 (tiles, group 2)", "counter 5 (arrival from rank 1, group 0)": for every report that names a
/// counter.
std::string describe_counter(const Plan& plan, std::int32_t counter);

std::string_view name(BufferRole role);
std::string_view name(CounterRole role);
std::string_view name(MessageKind kind);

}  // namespace flashoverlap
