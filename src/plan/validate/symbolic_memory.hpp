#pragma once

#include <span>
#include <vector>

#include "plan/matching.hpp"
#include "plan/validate/credits.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/grid.hpp"
#include "plan/validate/knowledge.hpp"

namespace flashoverlap {

/// The memory of all ranks. Each cell records what it holds, who wrote it and who has read it since. Replays
/// the events in one possible order and finds accesses that could also happen in the other order (race),
/// writes to ranks that may not have begun (credit), and values that are not what the problem asks for
/// (wrong_value).
class SymbolicMemory {
 public:
  SymbolicMemory(std::span<const Plan> plans, const Matching& matching, const CounterNumbers& numbers,
                 const Credits& credits, Findings& findings);

  /// `operands`: what is known when the tile reads its operands, for each part of k; `knowledge`: when it
  /// adds partial results and stores.
  void run_tile(std::int32_t rank, std::int32_t index, std::span<const Knowledge> operands,
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

  Grid& grid(std::int32_t rank, BufferRole role) {
    return grids_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
  }
  const Plan& plan_of(std::int32_t rank) const { return plans_[static_cast<std::size_t>(rank)]; }
  const Message& message(std::int32_t rank, std::int32_t index) const {
    return plan_of(rank).messages[static_cast<std::size_t>(index)];
  }

  std::vector<RowLink> all_links() const;
  void fill_operands();
  void find_operand_runs();

  void check_operand(std::int32_t rank, std::int32_t index, const Tile& tile,
                     std::span<const Knowledge> knowledge, BufferRole buffer, Content content,
                     std::int32_t block, std::int32_t row);
  std::uint64_t add_partials(std::int32_t rank, std::int32_t index, const Tile& tile,
                             const Knowledge& knowledge);
  void store_tile(std::int32_t rank, std::int32_t index, const Tile& tile, std::uint64_t ranks,
                  const Knowledge& knowledge);

  /// Visits the cells of all columns, or of those that `moving` moves.
  template <typename Visit>
  void for_each_cell(std::int32_t rank, const Region& region, const Message* moving, Visit&& visit);

  void read(Cell& cell, const Event& reader, const Knowledge& knowledge, std::int32_t rank, BufferRole buffer,
            std::int32_t row, bool remember = true);
  void write(Cell& cell, const Value& value, const Event& writer, const Knowledge& knowledge,
             std::int32_t rank, BufferRole buffer, std::int32_t row);
  /// `moving`: as above.
  void move(const Region& from, std::int32_t from_rank, const Event& reader,
            const Knowledge& reader_knowledge, const Region& to, std::int32_t to_rank, const Event& writer,
            const Knowledge& writer_knowledge, const Message* moving = nullptr);
  /// The sum of several cells; garbage if one of them is.
  Value sum(std::span<Cell* const> cells, std::int32_t rank, std::int32_t index);
  void check_output(std::int32_t rank, std::int64_t out_row, std::int32_t rows, std::int32_t col,
                    std::int32_t cols, std::int32_t buffer_row);

  std::span<const Plan> plans_;
  const Matching& matching_;
  const CounterNumbers& numbers_;
  const Credits& credits_;
  Findings& findings_;
  std::vector<std::array<Grid, buffer_count>> grids_;  // [rank][role]
  std::vector<Read> reads_;
  std::vector<std::vector<std::vector<OperandRun>>> a_runs_;  // [rank][block]
  std::vector<std::vector<OperandRun>> b_runs_;               // [rank]
  std::vector<std::int64_t> first_rows_of_runs_;              // of the output being checked
};

}  // namespace flashoverlap
