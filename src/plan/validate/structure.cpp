#include <algorithm>
#include <limits>

#include "flashoverlap/error.hpp"
#include "plan/at.hpp"
#include "plan/grouping.hpp"
#include "plan/matching.hpp"
#include "plan/message_rules.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/grid.hpp"

namespace flashoverlap {
namespace {

/// Of a row or column of a buffer.
constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

/// Checks one plan's indices, regions and shapes against its buffers and those of its peers.
class StructureCheck {
 public:
  StructureCheck(std::span<const Plan> plans, const Plan& plan, Findings& findings)
      : plans_(plans), plan_(plan), findings_(findings), gemm_(gemm_shape(plan.problem, plan.rank)) {}

  void run() {
    check_buffers();
    check_addressing();
    if (!findings_.empty()) return;
    for (std::size_t index = 0; index < plan_.row_map.size(); ++index) {
      const RowTarget& target = plan_.row_map[index];
      if (!is_rank(target.rank)) report("row_map[{}]: rank {} does not exist", index, target.rank);
      if (target.row < 0) report("row_map[{}]: row {} is negative", index, target.row);
    }
    for (std::size_t index = 0; index < plan_.counters.size(); ++index) {
      if (plan_.counters[index].target < 0)
        report("counter {}: target {} is negative", index, plan_.counters[index].target);
    }
    if (!findings_.empty()) return;
    for (std::size_t index = 0; index < plan_.tiles.size() && !findings_.full(); ++index) check_tile(index);
    for (std::size_t index = 0; index < plan_.messages.size() && !findings_.full(); ++index)
      check_message(index);
    check_output();
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    findings_.add(Violation::structure, "rank {}: {}", plan_.rank,
                  fmt::format(format, std::forward<Args>(args)...));
  }

  bool is_rank(std::int32_t rank) const { return rank >= 0 && rank < std::ssize(plans_); }
  const Plan& plan_of(std::int32_t rank) const { return at(plans_, rank); }
  static bool is_counter(const Plan& plan, std::int32_t counter) {
    return counter >= 0 && counter < std::ssize(plan.counters);
  }
  static bool within(std::int64_t first, std::int64_t count, std::int64_t extent) {
    return first >= 0 && count >= 0 && first + count <= extent;
  }

  void check_buffers() {
    for (std::size_t role = 0; role < buffer_count; ++role) {
      const Buffer& buffer = plan_.buffers[role];
      const bool may_lack_columns = role == static_cast<std::size_t>(BufferRole::a);  // of operand rows
      if (!within(0, buffer.rows, largest) || !within(0, buffer.cols, largest) ||
          (buffer.rows > 0 && buffer.cols == 0 && !may_lack_columns)) {
        report("buffer {}: {} x {} is not a shape", name(static_cast<BufferRole>(role)), buffer.rows,
               buffer.cols);
      }
    }
    const auto check_shape = [&](BufferRole role, const Shape& shape) {
      const Buffer& buffer = plan_.buffer(role);
      if (Shape{buffer.rows, buffer.cols} == shape) return;
      report("buffer {}: {} x {}, but the problem has {} x {}", name(role), buffer.rows, buffer.cols,
             shape.rows, shape.cols);
    };
    check_shape(BufferRole::a, a_shape(plan_.problem, plan_.rank));
    check_shape(BufferRole::b, b_shape(plan_.problem, plan_.rank));
    const Shape out = out_shape(plan_.problem, plan_.rank);
    const std::int64_t capacity = plan_.problem.capacity;
    if (plan_.schedule.layout == Layout::natural)
      check_shape(BufferRole::out, {capacity > 0 ? capacity : out.rows, out.cols});
    if (plan_.schedule.layout == Layout::partial)
      check_shape(BufferRole::out, {out.rows * plan_.problem.ranks, out.cols});
    if (Shape{plan_.output.rows, plan_.output.cols} != out) {
      report("output: {} x {}, but the problem has {} x {}", plan_.output.rows, plan_.output.cols, out.rows,
             out.cols);
    }
    if (plan_.buffer(BufferRole::a).peer_written || plan_.buffer(BufferRole::b).peer_written) {
      report("buffers a and b are read only and cannot be written by peers");
    }
  }

  void check_addressing() {
    const bool heads =
        plan_.problem.operation == Operation::all_to_all_gemm && plan_.problem.exchange == Exchange::heads;
    const std::int32_t blocks = heads ? plan_.problem.ranks : 1;
    if (plan_.a_blocks.count != blocks) report("a_blocks: count {} must be {}", plan_.a_blocks.count, blocks);
    if (plan_.a_blocks.row_stride < 0)
      report("a_blocks: row_stride {} is negative", plan_.a_blocks.row_stride);
    const std::int32_t ranks = plan_.problem.ranks;
    if (plan_.addends.count != 0 && plan_.addends.count != ranks - 1 && plan_.addends.count != ranks)
      report("addends: count {} must be 0, ranks - 1 = {}, or ranks", plan_.addends.count, ranks - 1);
    if (plan_.wait_depth != none && (plan_.wait_depth < 1 || plan_.a_blocks.count != 1))
      report("wait_depth: {} must be at least 1, and none where A is in blocks", plan_.wait_depth);
    if (plan_.own_k_first) check_own_k();
    if (plan_.addends.row_stride < 0) report("addends: row_stride {} is negative", plan_.addends.row_stride);
  }

  void check_own_k() {
    if (!gathers_along_k(plan_.problem)) return report("own_k_first: no operand is gathered along k");
    const std::int64_t part = plan_.problem.k / plan_.problem.ranks;
    if (plan_.wait_depth != part)
      report("own_k_first: wait_depth {} must be k / ranks = {}", plan_.wait_depth, part);
    const Buffer& gathered = plan_.buffer(BufferRole::gathered);
    const Buffer& own = plan_.buffer(plan_.problem.gathered == Operand::a ? BufferRole::a : BufferRole::b);
    if (gathered.rows != plan_.problem.k || gathered.cols != own.cols) {
      report("own_k_first: gathered is {} x {}, and must be {} x {}", gathered.rows, gathered.cols,
             plan_.problem.k, own.cols);
    }
  }

  /// Rows [row, row + rows) of a buffer that must have `cols` columns.
  bool is_readable(BufferRole role, std::int64_t row, std::int64_t rows, std::int64_t cols) const {
    const Buffer& buffer = plan_.buffer(role);
    return buffer.cols == cols && within(row, rows, buffer.rows);
  }

  /// Rows of an operand, with `k` elements each.
  bool is_operand(BufferRole role, OperandLayout layout, std::int64_t row, std::int64_t rows,
                  std::int64_t k) const {
    if (layout == OperandLayout::k_contiguous) return is_readable(role, row, rows, k);
    return plan_.buffer(role).rows == k && within(row, rows, plan_.buffer(role).cols);
  }

  /// A tile's rows of B, of one expert where they are contiguous.
  bool is_operand_b(const Tile& tile) const {
    const Problem& problem = plan_.problem;
    const RowsOfB b = rows_of_b(problem, tile);
    const int blocks = blocks_of_b(problem);
    return within(b.block, 1, blocks) &&
           is_operand(tile.b_buffer, problem.b_layout, b.row, tile.cols, problem.k * blocks);
  }

  void check_tile(std::size_t index) {
    const Tile& tile = plan_.tiles[index];
    const auto fail = [&](std::string_view rule) { report("tile {}: {}", index, rule); };
    if (tile.rows < 1 || tile.rows > entry_rows(plan_.schedule) || tile.cols < 1 ||
        tile.cols > plan_.schedule.tile_cols) {
      return fail("its size is not that of a tile");
    }
    if (!within(tile.row, tile.rows, gemm_.rows) || !within(tile.col, tile.cols, gemm_.cols))
      return fail("it lies outside C");
    if (tile.only_adds) {
      if (tile.start_wait != none) return fail("it only adds, and so has no operands to wait for");
      if (tile.addend_row == none) return fail("it only adds, and has no partial results");
    } else {
      if (index > 0 && plan_.tiles[index - 1].only_adds)
        return fail("it multiplies after tiles that only add");
      if (!check_operands(tile, fail)) return;
    }
    if (tile.store_wait != none && !is_counter(plan_, tile.store_wait))
      return fail(fmt::format("it waits for counter {}, which does not exist", tile.store_wait));
    if (!is_raise(tile.raise) && tile.raise.rank != none && !is_raise_everywhere(tile.raise))
      return fail("it raises a counter that does not exist");
    if (tile.addend_row != none) {
      if (tile.only_adds != (plan_.addends.count == plan_.problem.ranks))
        return fail("it only adds exactly if this rank's own partial result is among the addends");
      const std::int64_t last_partial = std::int64_t{plan_.addends.count - 1} * plan_.addends.row_stride;
      if (plan_.addends.count == 0 || tile.addend_row < 0 ||
          !is_readable(BufferRole::inbox, tile.addend_row + last_partial, tile.rows, gemm_.cols)) {
        return fail("its partial results lie outside the inbox");
      }
    }
    check_store(index, tile);
  }

  /// Of a tile that multiplies, and its waits for them.
  template <typename Fail>
  bool check_operands(const Tile& tile, const Fail& report_fault) {
    const auto fail = [&](std::string_view rule) {
      report_fault(rule);
      return false;
    };
    if (tile.a_buffer != BufferRole::a && tile.a_buffer != BufferRole::gathered)
      return fail("A is read from buffer a or gathered");
    if (tile.b_buffer != BufferRole::b && tile.b_buffer != BufferRole::gathered)
      return fail("B is read from buffer b or gathered");
    const bool gathers_a = plan_.problem.gathered == Operand::a;
    if (plan_.own_k_first && ((tile.a_buffer == BufferRole::gathered) != gathers_a ||
                              (tile.b_buffer == BufferRole::gathered) == gathers_a)) {
      return fail("with own_k_first, exactly the operand that is gathered is read from gathered");
    }
    const std::int64_t last_block = std::int64_t{plan_.a_blocks.count - 1} * plan_.a_blocks.row_stride;
    if (tile.a_row < 0 || !is_operand(tile.a_buffer, plan_.problem.a_layout, tile.a_row + last_block,
                                      tile.rows, plan_.problem.k / plan_.a_blocks.count)) {
      return fail("its rows of A lie outside the buffer");
    }
    if (!is_operand_b(tile)) return fail("its rows of B lie outside the buffer");
    const std::int32_t starts = start_waits(plan_, tile);
    if (starts > 0 && !within(tile.start_wait, starts, std::ssize(plan_.counters))) {
      return fail(fmt::format("it waits for {} counters from counter {} on, which do not all exist", starts,
                              tile.start_wait));
    }
    const auto target = [&](std::int32_t part) { return at(plan_.counters, tile.start_wait + part).target; };
    for (std::int32_t part = 1; part < starts; ++part) {
      if (target(part) != target(0)) return fail("the counters that it starts with have different targets");
    }
    return true;
  }

  void check_store(std::size_t index, const Tile& tile) {
    const auto fail = [&](std::string_view rule) { report("tile {}: {}", index, rule); };
    if (tile.buffer == BufferRole::a || tile.buffer == BufferRole::b || tile.buffer == BufferRole::gathered) {
      return fail("it is stored to out, staging or inbox only");
    }
    if (tile.row_map != none && tile.part_rows != none) return fail("it has both a row map and parts");
    if (tile.row_map != none && !within(tile.row_map, tile.rows, std::ssize(plan_.row_map)))
      return fail("its row map is too short");
    if (tile.part_rows != none && (tile.part_rows < 1 || tile.part_stride < 0))
      return fail("its parts have no size");
    if (tile.part_rows != none &&
        tile.store_row + std::int64_t{(tile.rows - 1) / tile.part_rows} * tile.part_stride + tile.part_rows >
            largest) {
      return fail("its parts are stored outside the buffer");
    }
    if (tile.row_map == none && !is_rank(tile.rank) && tile.rank != every_rank) {
      return fail(fmt::format("it is stored to rank {}, which does not exist", tile.rank));
    }
    if (tile.store_row < 0) return fail("it is stored outside the buffer");
    if (tile.part_rows != none && all_parts_fit(tile)) return;
    for_each_stored_piece(
        plans_, plan_, tile, [&](std::int32_t, const Plan& target, std::int32_t row, std::int32_t rows) {
          if (!holds(target, tile, row, rows)) {
            fail(fmt::format("it is stored outside rank {}'s {}", target.rank, name(tile.buffer)));
          } else if (!is_writable(target, tile.buffer)) {
            fail(fmt::format("it is stored to rank {}'s {}, which is not peer memory", target.rank,
                             name(tile.buffer)));
          }
        });
  }

  static bool holds(const Plan& target, const Tile& tile, std::int32_t row, std::int32_t rows) {
    const Buffer& buffer = target.buffer(tile.buffer);
    return within(row, rows, buffer.rows) && within(tile.store_col, tile.cols, buffer.cols);
  }
  bool is_writable(const Plan& target, BufferRole role) const {
    return target.rank == plan_.rank || target.buffer(role).peer_written;
  }

  /// Whether a tile's parts, of which there may be very many, certainly lie in memory.
  bool all_parts_fit(Tile tile) const {
    tile.rows = (tile.rows - 1) / tile.part_rows * tile.part_stride + tile.part_rows;
    tile.part_rows = none;
    bool fit = true;
    for_each_stored_piece(plans_, plan_, tile,
                          [&](std::int32_t, const Plan& target, std::int32_t row, std::int32_t rows) {
                            fit &= holds(target, tile, row, rows) && is_writable(target, tile.buffer);
                          });
    return fit;
  }

  bool is_raise(const Raise& raise) const {
    return is_rank(raise.rank) && is_counter(plan_of(raise.rank), raise.counter);
  }

  bool is_raise_everywhere(const Raise& raise) const {
    return raise.rank == every_rank &&
           std::ranges::all_of(plans_, [&](const Plan& plan) { return is_counter(plan, raise.counter); });
  }

  bool is_region(const Plan& owner, const Region& region) const {
    return region.rows > 0 && within(region.row, region.rows, owner.buffer(region.buffer).rows);
  }

  void check_message(std::size_t index) {
    const Message& message = plan_.messages[index];
    const auto fail = [&](std::string_view rule) {
      report("message {} ({}): {}", index, name(message.kind), rule);
    };
    for (const Wait& wait : message.waits) {
      if (!is_counter(plan_, wait.counter))
        return fail(fmt::format("it waits for counter {}, which does not exist", wait.counter));
    }
    for (const Raise& raise : message.raises) {
      if (!is_raise(raise)) return fail("it raises a counter that does not exist");
    }
    const bool copies = message.kind == MessageKind::copy || message.kind == MessageKind::store;
    const bool moves = copies || is_collective(message.kind);
    if (message.kind != MessageKind::exchange && !(message.sends.empty() && message.receives.empty())) {
      return fail("only an exchange has sends and receives");
    }
    if (message.kind == MessageKind::exchange) return check_parts(message, fail);
    if (!copies && message.peer != none) return fail("only copy and store have a peer");
    if (!copies && (message.col != 0 || message.cols != none))
      return fail("only copy and store can move some of the columns");
    if (!moves && (message.source != Region{} || message.destination != Region{}))
      return fail("it moves no data");
    if (copies && !is_rank(message.peer)) return fail(fmt::format("rank {} does not exist", message.peer));
    if (moves) check_move(message, copies ? plan_of(message.peer) : plan_, fail);
  }

  template <typename Fail>
  void check_parts(const Message& message, const Fail& fail) {
    for (const auto* parts : {&message.sends, &message.receives}) {
      for (const Part& part : *parts) {
        if (!is_rank(part.peer)) return fail(fmt::format("rank {} does not exist", part.peer));
        if (!is_region(plan_, part.region)) return fail("a part lies outside its buffer");
        if (parts == &message.receives && is_read_only(part.region.buffer))
          return fail("it receives into an operand");
      }
    }
    if (message.peer != none || message.source != Region{} || message.destination != Region{}) {
      return fail("an exchange has sends and receives only");
    }
  }

  template <typename Fail>
  void check_move(const Message& message, const Plan& owner, const Fail& fail) {
    const Region& source = message.source;
    const Region& destination = message.destination;
    if (!is_region(plan_, source)) return fail("its source lies outside the buffer");
    if (!is_region(owner, destination)) return fail("its destination lies outside the buffer");
    if (is_read_only(destination.buffer)) return fail("it writes an operand");
    const Buffer& target = owner.buffer(destination.buffer);
    if (plan_.buffer(source.buffer).cols != target.cols)
      return fail("source and destination differ in columns");
    if (owner.rank != plan_.rank && !target.peer_written) return fail("its destination is not peer memory");
    if (message.cols == none ? message.col != 0
                             : message.cols < 1 || !within(message.col, message.cols, target.cols)) {
      return fail("its columns lie outside the buffer");
    }
    const std::int64_t ranks = plan_.problem.ranks;
    const bool scatters = message.kind == MessageKind::reduce_scatter;
    const bool gathers = message.kind == MessageKind::all_gather;
    if (source.rows * (gathers ? ranks : 1) != destination.rows * (scatters ? ranks : 1)) {
      return fail("source and destination differ in rows");
    }
    if (message.kind == MessageKind::all_reduce && source != destination) return fail("it must be in place");
  }

  void check_output() {
    const Output& output = plan_.output;
    std::int64_t rows = 0;
    for (const RowOrigin& origin : output.origins) {
      if (origin.rank != none && !is_rank(origin.rank))
        return report("output: rank {} does not exist", origin.rank);
      if (!within(origin.row, origin.rows, largest) || !within(origin.col, output.cols, gemm_.cols)) {
        return report("output: {} rows from {} on, columns from {} on lie outside C", origin.rows, origin.row,
                      origin.col);
      }
      rows += origin.rows;
    }
    if (rows != output.rows)
      return report("output: the origins have {} rows, the result has {}", rows, output.rows);
    const Reorder& reorder = output.reorder;
    const bool is_partial = plan_.schedule.layout == Layout::partial;
    if (output.partials != (is_partial ? plan_.problem.ranks : 1))
      return report("output: {} partial results of {} ranks", output.partials, plan_.problem.ranks);
    if (!within(output.partial_stride, 0, is_partial ? output.rows : 0))
      return report("output: {} rows from one partial result to the next", output.partial_stride);
    if (plan_.schedule.layout != Layout::tiled) {
      if (reorder != Reorder{}) report("output: a result that is not tiled has no reorder");
      return;
    }
    if (reorder.block_rows < 1 || reorder.block_cols < 1)
      return report("output: the reorder's blocks have no size");
    const std::int64_t column_blocks = divide_up(output.cols, reorder.block_cols);
    const std::int64_t row_blocks = divide_up(output.rows, reorder.block_rows);
    if (std::ssize(reorder.first_row) != row_blocks * column_blocks) {
      return report("output: the reorder has {} entries, not {} x {}", reorder.first_row.size(), row_blocks,
                    column_blocks);
    }
    for (std::int64_t block = 0; block < std::ssize(reorder.first_row); ++block) {
      const std::int64_t done = block / column_blocks * reorder.block_rows;
      const std::int64_t height = std::min<std::int64_t>(reorder.block_rows, output.rows - done);
      const Buffer& out = plan_.buffer(BufferRole::out);
      if (!within(at(reorder.first_row, block), height, out.rows) ||
          out.cols < std::min<std::int64_t>(reorder.block_cols, output.cols)) {
        return report("output: entry {} of the reorder lies outside the buffer", block);
      }
    }
  }

  std::span<const Plan> plans_;
  const Plan& plan_;
  Findings& findings_;
  Shape gemm_;
};

/// Whether there is one plan for each rank, all of the same problem and schedule.
bool belong_together(std::span<const Plan> plans, Findings& findings) {
  if (plans.empty()) {
    findings.add(Violation::structure, "there are no plans");
    return false;
  }
  try {
    validate(plans[0].problem);
    validate(plans[0].schedule);
  } catch (const InvalidArgument& error) {
    findings.add(Violation::structure, "{}", error.what());
    return false;
  }
  const Problem& problem = plans[0].problem;
  const Schedule& schedule = plans[0].schedule;
  if (std::ssize(plans) != problem.ranks) {
    findings.add(Violation::structure, "{} plans for {} ranks", plans.size(), problem.ranks);
  }
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    if (plans[rank].rank != static_cast<std::int32_t>(rank)) {
      findings.add(Violation::structure, "plan {} is for rank {}", rank, plans[rank].rank);
    }
    if (plans[rank].problem != problem || plans[rank].schedule != schedule) {
      findings.add(Violation::structure, "ranks 0 and {} have plans for different problems or schedules",
                   rank);
    }
  }
  return findings.empty();
}

}  // namespace

void find_structure_violations(std::span<const Plan> plans, Findings& findings) {
  if (!belong_together(plans, findings)) return;
  for (const Plan& plan : plans) StructureCheck(plans, plan, findings).run();
}

}  // namespace flashoverlap
