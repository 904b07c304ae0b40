#include "plan/validate/symbolic_memory.hpp"

#include <algorithm>

#include "plan/message_rules.hpp"
#include "plan/row_routes.hpp"

namespace flashoverlap {
namespace {

using Content = Grid::Content;

std::uint64_t bit(std::int32_t rank) { return std::uint64_t{1} << rank; }

std::uint64_t all_bits(std::size_t ranks) {
  return ranks == 64 ? ~std::uint64_t{0} : bit(static_cast<std::int32_t>(ranks)) - 1;
}

}  // namespace

std::string SymbolicMemory::described(const Area& area) {
  return fmt::format("rank {}'s {} at row {}", area.rank, name(area.buffer), area.rows.first);
}

SymbolicMemory::SymbolicMemory(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                               const TileCounters& counters, const Credits& credits, Effort& effort,
                               Findings& findings)
    : plans_(plans),
      counters_(counters),
      credits_(credits),
      effort_(effort),
      findings_(findings),
      experts_(plans[0].problem) {
  grids_ = cut_grids(plans, areas, matching, effort);
  find_operand_runs();
}

void SymbolicMemory::find_operand_runs() {
  const Problem& problem = plans_[0].problem;
  const RowRoutes routes(problem);
  for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
    // Rows in memory: parts of k where an operand's rows are contiguous.
    const auto stored_rows = [&](OperandLayout layout, std::int64_t rows) {
      return static_cast<std::int32_t>(layout == OperandLayout::k_contiguous ? rows : problem.k);
    };
    const std::int32_t m = stored_rows(problem.a_layout, gemm_shape(problem, rank).rows);
    const std::int32_t n = stored_rows(problem.b_layout, problem.n);
    auto& a_runs = a_runs_.emplace_back();
    auto& b_runs = b_runs_.emplace_back();
    const auto shards = [&](std::int32_t extent) {
      std::vector<OperandRun> runs;
      const std::int32_t rows = extent / problem.ranks;
      for (std::int32_t source = 0; source < problem.ranks; ++source)
        runs.push_back({source * rows, rows, source, 0});
      return runs;
    };
    if (gathers(problem, Operand::a)) {
      a_runs = {shards(m)};
    } else if (problem.operation != Operation::all_to_all_gemm) {
      a_runs = {{{0, m, rank, 0}}};
    } else if (problem.exchange == Exchange::heads) {
      for (std::int32_t source = 0; source < problem.ranks; ++source)
        a_runs.push_back({{0, m, source, rank * m}});
    } else {
      a_runs.emplace_back();
      for (std::int32_t source = 0; source < problem.ranks; ++source) {
        const RowRoutes::Run run = routes.run(source, rank);
        if (run.rows > 0) a_runs[0].push_back({run.out_row, run.rows, source, run.first});
      }
    }
    for (std::int32_t expert = 0; expert < problem.experts; ++expert) {
      b_runs.push_back(gathers(problem, Operand::b) ? shards(n)
                                                    : std::vector<OperandRun>{{0, n, rank, expert * n}});
    }
  }
}

SymbolicMemory::Area SymbolicMemory::area(std::int32_t rank, const Region& region) const {
  const auto cols = static_cast<std::int32_t>(plan_of(rank).buffer(region.buffer).cols);
  return {rank, region.buffer, {region.row, region.rows}, {0, cols}};
}

SymbolicMemory::Area SymbolicMemory::area(std::int32_t rank, const Region& region,
                                          const Message& moving) const {
  Area moved = area(rank, region);
  if (moving.cols != none) moved.cols = {moving.col, moving.cols};
  return moved;
}

template <typename Visit>
void SymbolicMemory::for_each_cell(const Area& area, Visit&& visit) {
  Grid& cells = grid(area.rank, area.buffer);
  const std::size_t end_band = cells.band(area.rows.first + area.rows.count);
  const std::size_t first_column = cells.column(area.cols.first);
  const std::size_t end_column = cells.column(area.cols.first + area.cols.count);
  const std::size_t first_band = cells.band(area.rows.first);
  effort_.spend((end_band - first_band) * (end_column - first_column), "reads and writes of the same pieces");
  for (std::size_t band = first_band; band < end_band; ++band) {
    const Range rows{cells.first_row(band), cells.first_row(band + 1) - cells.first_row(band)};
    for (std::size_t column = first_column; column < end_column && !findings_.full(); ++column) {
      const Range cols{cells.first_col(column), cells.first_col(column + 1) - cells.first_col(column)};
      const Area place{area.rank, area.buffer, rows, cols};
      if (!is_read_only(area.buffer)) {
        visit(cells.cell(band, column), place);
        continue;
      }
      const Content content = area.buffer == BufferRole::a ? Content::operand_a : Content::operand_b;
      Cell unwritten{.value = {bit(area.rank), rows.first, cols.first, content}};
      visit(unwritten, place);
    }
  }
}

void SymbolicMemory::read(Cell& cell, const Area& place, const Access& access, bool remember) {
  const Event& reader = access.event;
  if (!is_known(cell.writer, access.knowledge, plans_, counters_)) {
    findings_.add(Violation::race, "{} reads {}, which {} may not have written yet", describe(reader, plans_),
                  described(place), describe(cell.writer, plans_));
  } else if (reader.is_tile && cell.value.content == Content::garbage) {
    // Messages may: they also move the columns next to a ragged tile that nobody has written.
    findings_.add(Violation::race, "{} reads {}, which may not be written yet", describe(reader, plans_),
                  described(place));
  }
  if (!remember || is_read_only(place.buffer)) return;
  reads_.push_back({reader, cell.last_read});
  cell.last_read = static_cast<std::int32_t>(reads_.size()) - 1;
}

void SymbolicMemory::write(Cell& cell, const Area& place, const Access& access, const Value& value) {
  const auto& [writer, knowledge] = access;
  credits_.check_write(writer, knowledge, place.rank, [&] { return described(place); });
  if (!is_known(cell.writer, knowledge, plans_, counters_)) {
    findings_.add(Violation::race, "{} writes {}, which {} may write later", describe(writer, plans_),
                  described(place), describe(cell.writer, plans_));
  }
  for (std::int32_t entry = cell.last_read; entry != none; entry = at(reads_, entry).earlier) {
    const Event& reader = at(reads_, entry).reader;
    if (is_known(reader, knowledge, plans_, counters_)) continue;
    findings_.add(Violation::race, "{} writes {}, which {} may read before or after",
                  describe(writer, plans_), described(place), describe(reader, plans_));
  }
  cell.value = value;
  cell.writer = writer;
  cell.last_read = none;
}

void SymbolicMemory::run_tiles(std::int32_t rank, const TileArea& area, std::span<const Knowledge> operands,
                               const Knowledge& knowledge) {
  const Plan& plan = plan_of(rank);
  const Tile tile = whole(plan, area);
  const Access access{tile_event(rank, area.first), knowledge};
  if (!tile.only_adds) check_operands(access.event, tile, operands);
  const std::uint64_t ranks = (tile.only_adds ? 0 : bit(rank)) | add_partials(tile, access);
  for_each_stored_piece(
      plans_, plan, tile, [&](std::int32_t first, const Plan& target, std::int32_t row, std::int32_t rows) {
        const Area stored{target.rank, tile.buffer, {row, rows}, {tile.store_col, tile.cols}};
        for_each_cell(stored, [&](Cell& cell, const Area& place) {
          write(cell, place, access,
                {ranks, tile.row + first + (place.rows.first - row),
                 tile.col + (place.cols.first - tile.store_col), Content::partial});
        });
      });
}

void SymbolicMemory::check_operands(const Event& event, const Tile& tile,
                                    std::span<const Knowledge> operands) {
  const Plan& plan = plan_of(event.rank);
  for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
    const std::int32_t row = tile.a_row + block * plan.a_blocks.row_stride;
    check_operand(
        event,
        {Content::operand_a, tile.a_buffer, row, {tile.row, tile.rows}, at(at(a_runs_, event.rank), block)},
        operands);
  }
  const std::vector<ExpertParts::Part> parts = experts_.within(event.rank, {tile.row, tile.rows});
  if (parts.size() > 1) {
    findings_.add(Violation::wrong_value, "{} computes rows of experts {} and {} with the same weights",
                  describe(event, plans_), parts[0].expert, parts[1].expert);
  }
  const RowsOfB b = rows_of_b(plan.problem, tile);
  check_operand(event,
                {Content::operand_b,
                 tile.b_buffer,
                 b.row,
                 {tile.col, tile.cols},
                 at(at(b_runs_, event.rank), parts[0].expert),
                 -b.block * static_cast<std::int32_t>(plan.problem.k)},
                operands);
}

void SymbolicMemory::check_operand(const Event& tile, TileOperand operand,
                                   std::span<const Knowledge> knowledge) {
  const Plan& plan = plan_of(tile.rank);
  const auto k = static_cast<std::int32_t>(plan.problem.k);
  operand.stored_k = {-operand.first_k, k};
  if (!plan.own_k_first || operand.buffer != BufferRole::gathered)
    return check_stored_k(tile, operand, knowledge);
  const std::int32_t own_end = (tile.rank + 1) * plan.wait_depth;
  operand.stored_k = {own_end, k - own_end};
  check_stored_k(tile, operand, knowledge);
  operand.stored_k = {0, own_end - plan.wait_depth};
  check_stored_k(tile, operand, knowledge);
  operand.buffer = operand.content == Content::operand_a ? BufferRole::a : BufferRole::b;
  operand.stored_k = {0, plan.wait_depth};
  operand.first_k = own_end - plan.wait_depth;
  check_stored_k(tile, operand, knowledge);
}

void SymbolicMemory::check_stored_k(const Event& tile, const TileOperand& operand,
                                    std::span<const Knowledge> knowledge) {
  const auto expected = [&](std::int32_t position) {
    const auto after = std::ranges::upper_bound(operand.runs, position, {}, &OperandRun::first);
    const OperandRun& run = *(after - 1);
    return std::pair{run.rank, run.row + (position - run.first)};
  };
  const std::int32_t first = operand.part.first;
  const std::int32_t row = operand.row;
  const Range rows{row, operand.part.count};
  const Plan& plan = plan_of(tile.rank);
  const Operand which = operand.content == Content::operand_a ? Operand::a : Operand::b;
  const bool k_contiguous = layout_of(plan.problem, which) == OperandLayout::k_contiguous;
  // Which of the waits in the order of k, see `Plan::own_k_first`.
  const auto waits_before = [&](std::int32_t k) {
    if (knowledge.size() == 1) return 0;
    const std::int32_t part = k / plan.wait_depth;
    return plan.own_k_first ? (part - tile.rank + plan.problem.ranks) % plan.problem.ranks : part;
  };
  const Area read_area = k_contiguous ? area(tile.rank, {operand.buffer, rows.first, rows.count})
                                      : Area{tile.rank, operand.buffer, operand.stored_k, rows};
  for_each_cell(read_area, [&](Cell& cell, const Area& place) {
    const std::int32_t k = k_contiguous ? place.cols.first : operand.first_k + place.rows.first;
    read(cell, place, {tile, at(knowledge, waits_before(k))});
    // Of the whole operand in memory.
    const std::int32_t first_row = k_contiguous ? first + (place.rows.first - row) : k;
    const std::int32_t first_col = k_contiguous ? place.cols.first : first + (place.cols.first - row);
    const std::int32_t more = place.rows.count - 1;
    const auto [source, source_row] = expected(first_row);
    const bool right = cell.value == Value{bit(source), source_row, first_col, operand.content} &&
                       expected(first_row + more) == std::pair{source, source_row + more};
    if (right || cell.value.content == Content::garbage) return;
    findings_.add(Violation::wrong_value, "{} reads {}, which does not hold rows {} to {} of {} of rank {}",
                  describe(tile, plans_), described(place), source_row, source_row + more,
                  operand.content == Content::operand_a ? "A" : "B", source);
  });
}

std::uint64_t SymbolicMemory::add_partials(const Tile& tile, const Access& access) {
  const std::int32_t rank = access.event.rank;
  const Addends& addends = plan_of(rank).addends;
  std::uint64_t ranks = 0;
  if (tile.addend_row == none) return ranks;
  for (std::int32_t partial = 0; partial < addends.count; ++partial) {
    const std::int32_t source = tile.only_adds || partial < rank ? partial : partial + 1;
    const std::int32_t row = tile.addend_row + partial * addends.row_stride;
    const Area added{rank, BufferRole::inbox, {row, tile.rows}, {tile.col, tile.cols}};
    for_each_cell(added, [&](Cell& cell, const Area& place) {
      read(cell, place, access);
      const Value expected{bit(source), tile.row + (place.rows.first - row), place.cols.first,
                           Content::partial};
      if (cell.value == expected || cell.value.content == Content::garbage) return;
      findings_.add(Violation::wrong_value,
                    "{} adds {}, which does not hold rank {}'s partial result from row {} on",
                    describe(access.event, plans_), described(place), source, expected.row);
    });
    ranks |= bit(source);
  }
  return ranks;
}

void SymbolicMemory::move(const Area& from, const Access& reader, const Area& to, const Access& writer) {
  std::vector<Value> values;
  for_each_cell(from, [&](Cell& cell, const Area& place) {
    read(cell, place, reader);
    values.push_back(cell.value);
  });
  auto next = values.begin();
  for_each_cell(to, [&](Cell& cell, const Area& place) { write(cell, place, writer, *next++); });
}

void SymbolicMemory::run_copy(std::int32_t rank, std::int32_t index, const Knowledge& knowledge) {
  const Message& copy = message(rank, index);
  const Access access{message_event(rank, index), knowledge};
  move(area(rank, copy.source, copy), access, area(copy.peer, copy.destination, copy), access);
}

void SymbolicMemory::run_transfer(const Transfer& transfer, const Knowledge& source,
                                  const Knowledge& target) {
  move(area(transfer.source, transfer.from()),
       {message_event(transfer.source, transfer.send_message), source}, area(transfer.target, transfer.to()),
       {message_event(transfer.target, transfer.receive_message), target});
}

SymbolicMemory::Value SymbolicMemory::sum(std::span<const Value> values, const Event& collective) {
  Value total = values[0];
  for (const Value& value : values.subspan(1)) {
    if (value.content == Content::garbage || total.content == Content::garbage) return {};
    if (value.content != Content::partial || total.content != Content::partial || value.row != total.row ||
        value.col != total.col || (value.ranks & total.ranks) != 0) {
      findings_.add(Violation::wrong_value,
                    "{} adds different parts: row {}, column {} of C and row {}, column {}",
                    describe(collective, plans_), total.row, total.col, value.row, value.col);
      return {};
    }
    total.ranks |= value.ranks;
  }
  return total;
}

void SymbolicMemory::run_collective(std::span<const std::int32_t> members, std::span<const Knowledge> starts,
                                    const Knowledge& together) {
  const auto ranks = static_cast<std::int32_t>(plans_.size());
  const MessageKind kind = message(0, members[0]).kind;
  std::vector<std::vector<Value>> sources(plans_.size());
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const Access access{message_event(rank, at(members, rank)), at(starts, rank)};
    for_each_cell(area(rank, message(rank, at(members, rank)).source), [&](Cell& cell, const Area& place) {
      read(cell, place, access, kind != MessageKind::all_reduce);
      at(sources, rank).push_back(cell.value);
    });
  }

  if (findings_.full()) return;
  std::vector<Value> result;  // all_reduce and reduce_scatter: the sum; all_gather: the parts in rank order
  if (kind == MessageKind::all_gather) {
    for (const auto& part : sources) result.insert(result.end(), part.begin(), part.end());
  } else {
    std::vector<Value> summands(sources.size());
    for (std::size_t position = 0; position < sources[0].size(); ++position) {
      std::ranges::transform(sources, summands.begin(), [&](const auto& source) { return source[position]; });
      result.push_back(sum(summands, message_event(0, members[0])));
    }
  }

  auto next = result.begin();  // reduce_scatter continues where the rank before ended
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (kind != MessageKind::reduce_scatter) next = result.begin();
    const Event receiver = message_event(rank, at(members, rank));
    const Message& mine = message(rank, receiver.index);
    const auto receive = [&](const Region& region, const Knowledge& knowledge) {
      for_each_cell(area(rank, region), [&](Cell& cell, const Area& place) {
        write(cell, place, {receiver, knowledge}, *next++);
      });
    };
    if (kind != MessageKind::all_gather) {
      receive(mine.destination, together);
      continue;
    }
    // A sum needs all ranks, but what one rank sends may arrive before the others have begun.
    Region part{mine.destination.buffer, mine.destination.row, mine.source.rows};
    for (const Knowledge& sender : starts) {
      Knowledge both = at(starts, rank);
      both.merge(sender);
      receive(part, both);
      part.row += part.rows;
    }
  }
}

void SymbolicMemory::check_end(std::span<const Knowledge> ends) {
  for (const Plan& plan : plans_) {
    for (std::size_t role = 0; role < buffer_count; ++role) {
      if (!plan.buffers[role].peer_written) continue;
      const auto rows = static_cast<std::int32_t>(plan.buffers[role].rows);
      for_each_cell(area(plan.rank, {static_cast<BufferRole>(role), 0, rows}),
                    [&](Cell& cell, const Area& place) {
                      if (is_known(cell.writer, at(ends, plan.rank), plans_, counters_)) return;
                      findings_.add(Violation::race, "{} may still write {} when the rank's run is over",
                                    describe(cell.writer, plans_), described(place));
                    });
    }
    std::vector<std::int32_t> run_rows{0};
    for (const RowOrigin& origin : plan.output.origins) run_rows.push_back(run_rows.back() + origin.rows);
    const bool is_summed = plan.output.partials == 1;
    for_each_partial(plan.output, [&](std::int32_t rank, std::int32_t first) {
      const std::uint64_t summed = is_summed ? all_bits(plans_.size()) : bit(rank);
      for_each_block(plan.output, [&](std::int32_t row, Range rows, Range cols) {
        check_block(plan, run_rows, first + row, rows, cols, summed);
      });
    });
  }
}

void SymbolicMemory::check_block(const Plan& plan, std::span<const std::int32_t> run_rows, std::int32_t row,
                                 Range rows, Range cols, std::uint64_t summed) {
  for_each_cell({plan.rank, BufferRole::out, {row, rows.count}, {0, cols.count}},
                [&](Cell& cell, const Area& place) {
                  const std::int32_t first = rows.first + (place.rows.first - row);
                  const auto after = std::ranges::upper_bound(run_rows, first);
                  const RowOrigin& origin = at(plan.output.origins, after - run_rows.begin() - 1);
                  const std::int32_t skipped = first - *(after - 1);
                  const Value expected{origin.rank == none ? summed : bit(origin.rank), origin.row + skipped,
                                       origin.col + cols.first + place.cols.first, Content::partial};
                  if (cell.value == expected && skipped + place.rows.count <= origin.rows) return;
                  findings_.add(Violation::wrong_value, "{} does not hold row {}, column {} of {}",
                                described(place), expected.row, expected.col,
                                origin.rank != none         ? fmt::format("rank {}'s C", origin.rank)
                                : plan.output.partials == 1 ? std::string("the sum over all ranks")
                                                            : "a rank's partial result");
                });
}

}  // namespace flashoverlap
