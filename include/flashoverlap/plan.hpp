/// A plan: what one rank does for one problem. Plain data: `make_plans` writes it, `validate` proves it,
/// `HostExecutor` and `Operator` run it, `simulate` predicts its time.
///
/// A plan is two lists. The *tile list* is the rank's GEMM: workers (thread blocks, or threads on the host)
/// take tiles in list order; any number of workers is correct. The *message list* is the rank's communication
/// stream: messages run one after the other. Tiles and messages synchronise through counters only.
///
/// All rows, columns and counts are in elements of the matrix, never in bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"
#include "flashoverlap/short_list.hpp"

namespace flashoverlap {

inline constexpr std::int32_t none = -1;  ///< no counter, no peer, no row map, ...
/// A tile that is stored at the same place on every rank, or raises the same counter of every rank.
inline constexpr std::int32_t every_rank = -2;

/// The matrices of a plan. The caller passes `a`, `b` and `out`; the executor allocates the others, and `out`
/// too where peers write it.
enum class BufferRole : std::uint8_t {
  a,         ///< operand A, or the rank's part of it: `a_shape`. Read only
  b,         ///< operand B, or the rank's shard of it: `b_shape`. Read only
  out,       ///< the result
  staging,   ///< tiles that wait to be sent
  inbox,     ///< partial results from peers
  gathered,  ///< the operand that was gathered or exchanged
};
inline constexpr int buffer_count = 6;

/// Shape of a row-major matrix without padding between rows. No rows or no columns: the plan does not use it.
struct Buffer {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool peer_written = false;  ///< peers store into it directly, so it must be in peer-accessible memory
  bool operator==(const Buffer&) const = default;
};

enum class CounterRole : std::uint8_t {
  tiles,    ///< raised by this rank's tiles
  arrival,  ///< raised when data from peers is in memory
  credit,   ///< raised by a peer when its run begins: from then on its buffers may be written
};

/// A counter in this rank's memory. It is zero before and after a run and reaches exactly `target` in
/// between. Every wait waits for `target`.
struct Counter {
  CounterRole role = CounterRole::tiles;
  std::int32_t group = none;  ///< for error messages
  std::int32_t peer = none;   ///< for error messages
  std::int32_t target = 0;
  bool operator==(const Counter&) const = default;
};

/// Increments a counter of any rank, with release semantics: whoever waits for the counter sees all that the
/// raiser had written or seen before.
struct Raise {
  std::int32_t rank = none;  ///< `none`: nothing is raised; a tile may raise that of `every_rank`
  std::int32_t counter = none;
  bool operator==(const Raise&) const = default;
};

/// One entry of the tile list: a tile of C, where its operands are read and where it is stored.
struct Tile {
  /// First row and column in C, and the size; at most `entry_rows` × `Schedule::tile_cols`.
  std::int32_t row = 0;
  std::int32_t col = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;

  /// The operands: `rows` rows of A from a_row on, `cols` rows of B from b_row on. They are columns of the
  /// buffer where the operand is `row_contiguous`. Row e·n + j of B is row j of expert e's: column j of rows
  /// [e·k, (e + 1)·k) of a `row_contiguous` buffer, of which a tile reads one expert's.
  std::int32_t a_row = 0;
  std::int32_t b_row = 0;
  BufferRole a_buffer = BufferRole::a;  ///< `a` or `gathered`, see `Plan::own_k_first`
  BufferRole b_buffer = BufferRole::b;  ///< `b` or `gathered`
  /// The tile multiplies nothing: it is the sum of the partial results of all ranks. Such tiles come after
  /// all others in the list, and the others add nothing.
  bool only_adds = false;

  /// Where the tile is stored: row i goes to row store_row + i of the buffer, from column store_col on.
  BufferRole buffer = BufferRole::out;  ///< `out`, `staging` or `inbox`
  std::int32_t rank = 0;                ///< whose buffer: this rank's, a peer's, or `every_rank`
  std::int32_t store_row = 0;
  std::int32_t store_col = 0;
  /// If not `none`: row i goes to Plan::row_map[row_map + i] instead.
  std::int32_t row_map = none;
  /// If not `none`: the tile is stored in parts of this many rows, `part_stride` rows apart: row i goes to
  /// row store_row + (i / part_rows) · part_stride + i % part_rows. Not together with a row map.
  std::int32_t part_rows = none;
  std::int32_t part_stride = 0;
  /// If not `none`: the epilogue adds partial results from the inbox, see `Addends`.
  std::int32_t addend_row = none;

  std::int32_t start_wait = none;  ///< counter to wait for before A and B are read; see `Plan::wait_depth`
  std::int32_t store_wait = none;  ///< counter to wait for before addends are read and the tile is stored
  Raise raise{};                   ///< once the tile is stored: raised by `Schedule::cluster_rows`
  std::int32_t group = 0;          ///< for error messages and pictures
  bool operator==(const Tile&) const = default;
};

/// Where one row of a tile is stored.
struct RowTarget {
  std::int32_t rank = 0;
  std::int32_t row = 0;
  bool operator==(const RowTarget&) const = default;
};

/// The partial results that tiles with an `addend_row` add. Partial result j of `count` lies in the inbox
/// from row addend_row + j · row_stride and column Tile::col on. It is that of rank j, or, where this rank's
/// own is not among them, of rank j + 1 if j is not less than this rank. The sum over all ranks, with this
/// rank's own product, is computed in fp32 in rank order.
struct Addends {
  std::int32_t count = 0;  ///< 0, ranks - 1, or ranks where tiles only add
  std::int32_t row_stride = 0;
  bool operator==(const Addends&) const = default;
};

/// Splits operand A into `count` blocks of k / count columns, stored one below the other: column j of row i
/// lies at row i + (j / (k / count)) · row_stride. count = 1 is an ordinary matrix.
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

/// The collectives and `exchange` are NCCL's. All ranks call the same collectives in the same order.
enum class MessageKind : std::uint8_t {
  all_reduce,      ///< the sum of `source` over all ranks, in place: destination = source
  reduce_scatter,  ///< source has ranks · destination.rows rows; part r of the sum goes to rank r
  all_gather,      ///< destination has ranks · source.rows rows: the sources in rank order
  exchange,        ///< grouped sends and receives; a pair of ranks matches them in list order
  copy,            ///< `source` to `destination` on `peer` (or this rank), by a copy engine
  store,           ///< the same, by thread blocks that store into the peer's memory
  signal,          ///< no data: only waits and raises
};

struct Wait {
  std::int32_t counter = 0;  ///< of this rank
  bool reset = false;        ///< the message sets the counter to zero, as exactly one wait per run does
  bool operator==(const Wait&) const = default;
};

/// One send or receive of an exchange.
struct Part {
  std::int32_t peer = 0;
  Region region{};
  bool operator==(const Part&) const = default;
};

/// One entry of the message list: waits, then a transfer, then raises.
///
/// The resets come after *all* of the message's waits and before its first raise, at any time between:
/// before, during or after the transfer. So a message may wait twice for a counter that it resets, any of its
/// waits may prove that the tiles no longer wait for it, and whoever learns that the message is done knows
/// that the counter is zero. Nothing else may be concluded.
struct Message {
  MessageKind kind = MessageKind::signal;
  bool after_tiles = false;   ///< also wait until every tile of this rank is done
  std::int32_t group = none;  ///< for error messages and pictures
  ShortList<Wait> waits{};
  Region source{};           ///< of this rank; not for `exchange` and `signal`
  Region destination{};      ///< of `peer` for `copy` and `store`, else of this rank
  std::int32_t peer = none;  ///< `copy` and `store` only
  std::int32_t col = 0;      ///< `copy` and `store`: the first column that is moved
  std::int32_t cols = none;  ///< and how many; `none`: all columns
  ShortList<Part> sends{};   ///< `exchange` only
  ShortList<Part> receives{};
  ShortList<Raise> raises{};  ///< each counter by one, once the data is visible
  bool operator==(const Message&) const = default;
};

/// What consecutive rows of the result are: rows of C, from column `col` on.
struct RowOrigin {
  std::int32_t rank = none;  ///< whose C; `none`: the sum over all ranks
  std::int32_t row = 0;
  std::int32_t rows = 0;
  std::int32_t col = 0;
  bool operator==(const RowOrigin&) const = default;
};

/// How to read a `tiled` result: element (i, j) of the result lies in buffer `out` at row
/// first_row[(i / block_rows) · column_blocks + j / block_cols] + i % block_rows and column j % block_cols,
/// where column_blocks = ⌈cols / block_cols⌉.
struct Reorder {
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  std::vector<std::int32_t> first_row{};  ///< empty: the result is natural, row i is row i of the buffer
  bool operator==(const Reorder&) const = default;
};

/// The result that the rank has in buffer `out` after a run.
struct Output {
  std::int64_t rows = 0;  ///< `out_shape`
  std::int64_t cols = 0;
  std::vector<RowOrigin> origins{};  ///< in order of the result's rows
  Reorder reorder{};
  /// Each element is the sum of this many elements of the buffer that lie `partial_stride` rows apart: the
  /// partial results of the ranks, to be added in fp32 and in this order. 1 unless the layout is `partial`.
  std::int32_t partials = 1;
  std::int32_t partial_stride = 0;
  bool operator==(const Output&) const = default;
};

struct Plan {
  Problem problem{};
  Schedule schedule{};
  std::int32_t rank = 0;
  std::array<Buffer, buffer_count> buffers{};  ///< by `BufferRole`
  ABlocks a_blocks{};
  /// If not `none`: tiles wait for their operands in parts of this many columns of k. The first part needs
  /// counter start_wait, the second start_wait + 1, and so on, so that a tile starts with the first part
  /// before the others have arrived.
  std::int32_t wait_depth = none;
  /// Only where an operand is gathered along k, and wait_depth is k / ranks. Tiles then take the parts of k
  /// in the order of the ring, from this rank's on. They read its own part from buffer `a` or `b`, where its
  /// first column is 0, before they wait for anything. The others they read from `gathered`: the part of rank
  /// + 1 (modulo ranks) needs counter start_wait, that of rank + 2 start_wait + 1, and so on.
  bool own_k_first = false;
  Addends addends{};
  std::vector<Counter> counters{};
  std::vector<Tile> tiles{};
  std::vector<RowTarget> row_map{};  ///< see `Tile::row_map`
  std::vector<Message> messages{};
  Output output{};

  Buffer& buffer(BufferRole role) { return buffers[static_cast<std::size_t>(role)]; }
  const Buffer& buffer(BufferRole role) const { return buffers[static_cast<std::size_t>(role)]; }
  bool operator==(const Plan&) const = default;
};

/// Where row `row` of a tile (0: its first) is stored.
inline RowTarget stored_at(const Plan& plan, const Tile& tile, std::int32_t row) {
  if (tile.row_map != none) return plan.row_map[static_cast<std::size_t>(tile.row_map + row)];
  if (tile.part_rows == none) return {tile.rank, tile.store_row + row};
  return {tile.rank, tile.store_row + row / tile.part_rows * tile.part_stride + row % tile.part_rows};
}

/// The number of counters, from start_wait on, that a tile waits for before it has read all of its operands.
inline std::int32_t start_waits(const Plan& plan, const Tile& tile) {
  if (tile.start_wait == none) return 0;
  if (plan.wait_depth == none) return 1;
  const auto parts = static_cast<std::int32_t>((plan.problem.k + plan.wait_depth - 1) / plan.wait_depth);
  return plan.own_k_first ? parts - 1 : parts;
}

/// A counter as error messages name it: "counter 5 (arrival from rank 1, group 0)".
std::string describe_counter(const Plan& plan, std::int32_t counter);

std::string_view name(BufferRole role);
std::string_view name(CounterRole role);
std::string_view name(MessageKind kind);

}  // namespace flashoverlap
