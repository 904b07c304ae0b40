#pragma once

#include <deque>
#include <span>
#include <vector>

#include "plan/at.hpp"
#include "plan/expert_parts.hpp"
#include "plan/matching.hpp"
#include "plan/validate/credits.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/grid.hpp"
#include "plan/validate/tile_counters.hpp"

namespace flashoverlap {

/// The memory of all ranks. Each cell records what it holds, who wrote it and who has read it since. Replays
/// the events in one possible order and finds accesses that could also happen in the other order (race),
/// writes to ranks that may not have begun (credit), and values that are not what the problem asks for
/// (wrong_value).
class SymbolicMemory {
 public:
  SymbolicMemory(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                 const TileCounters& counters, const Credits& credits, Effort& effort, Findings& findings);

  /// `operands`: what is known when the tiles read their operands, for each part of k; `knowledge`: when they
  /// add partial results and store.
  void run_tiles(std::int32_t rank, const TileArea& area, std::span<const Knowledge> operands,
                 const Knowledge& knowledge);
  void run_copy(std::int32_t rank, std::int32_t index, const Knowledge& knowledge);
  void run_transfer(const Transfer& transfer, const Knowledge& source, const Knowledge& target);
  /// `members[rank]`: the rank's message; `starts[rank]`: what is known when it begins; `together`: the
  /// union.
  void run_collective(std::span<const std::int32_t> members, std::span<const Knowledge> starts,
                      const Knowledge& together);
  /// `ends[rank]`: what is known when the rank's run is over.
  void check_end(std::span<const Knowledge> ends);

 private:
  using Cell = Grid::Cell;
  using Value = Grid::Value;
  using Content = Grid::Content;

  /// What the operand of the GEMM must hold: its rows [first, first + rows) are rows of `rank`'s A or B from
  /// `row` on.
  struct OperandRun {
    std::int32_t first;
    std::int32_t rows;
    std::int32_t rank;
    std::int32_t row;
  };

  struct Read {
    Event reader;
    std::int32_t earlier;
  };

  /// Some columns of some rows of a buffer.
  struct Area {
    std::int32_t rank;
    BufferRole buffer;
    Range rows;
    Range cols;
  };

  /// Who reads or writes, and what is known then.
  struct Access {
    Event event;
    const Knowledge& knowledge;
  };

  /// An operand of a tile: from `row` of `buffer` on, `part` of the GEMM's operand, which `runs` describe.
  struct TileOperand {
    Content content;
    BufferRole buffer;
    std::int32_t row;
    Range part;
    const std::vector<OperandRun>& runs;
    /// Which of the operand's columns of k is the buffer's first, where rows are contiguous; negative where
    /// those of other experts come before it.
    std::int32_t first_k = 0;
    Range stored_k{};  ///< in the buffer
  };

  Grid& grid(std::int32_t rank, BufferRole role) { return at(at(grids_, rank), role); }
  const Plan& plan_of(std::int32_t rank) const { return at(plans_, rank); }
  const Message& message(std::int32_t rank, std::int32_t index) const {
    return at(plan_of(rank).messages, index);
  }
  /// A region of a rank; all of its columns, or those that a copy or store moves.
  Area area(std::int32_t rank, const Region& region) const;
  Area area(std::int32_t rank, const Region& region, const Message& moving) const;

  static std::string described(const Area& area);

  void find_operand_runs();

  void check_operands(const Event& event, const Tile& tile, std::span<const Knowledge> operands);
  void check_operand(const Event& tile, TileOperand operand, std::span<const Knowledge> knowledge);
  void check_stored_k(const Event& tile, const TileOperand& operand, std::span<const Knowledge> knowledge);
  /// Reads the partial results that a tile adds, if any. Returns a bit for each rank whose result it adds.
  std::uint64_t add_partials(const Tile& tile, const Access& access);

  /// Calls visit(cell, the area that is this cell), until there are enough findings.
  template <typename Visit>
  void for_each_cell(const Area& area, Visit&& visit);

  void read(Cell& cell, const Area& place, const Access& access, bool remember = true);
  void write(Cell& cell, const Area& place, const Access& access, const Value& value);
  void move(const Area& from, const Access& reader, const Area& to, const Access& writer);
  /// The sum of several values; garbage if one of them is.
  Value sum(std::span<const Value> values, const Event& collective);
  /// Compares a block of the result, from `row` of `out` on. `run_rows`: the first row of each origin.
  /// `summed`: the ranks of which the block has the sum, where the result is one.
  void check_block(const Plan& plan, std::span<const std::int32_t> run_rows, std::int32_t row, Range rows,
                   Range cols, std::uint64_t summed);

  std::span<const Plan> plans_;
  const TileCounters& counters_;
  const Credits& credits_;
  Effort& effort_;
  Findings& findings_;
  std::vector<RankGrids> grids_;                              // [rank][role]
  std::deque<Read> reads_;                                    // which moves none when it grows
  std::vector<std::vector<std::vector<OperandRun>>> a_runs_;  // [rank][block]
  std::vector<std::vector<std::vector<OperandRun>>> b_runs_;  // [rank][expert]
  ExpertParts experts_;
};

}  // namespace flashoverlap
