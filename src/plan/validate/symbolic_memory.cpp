#include "plan/validate/symbolic_memory.hpp"

#include <algorithm>
#include <bit>

namespace flashoverlap {

namespace {

using Content = Grid::Content;

std::uint64_t bit(std::int32_t rank) { return std::uint64_t{1} << rank; }

std::uint64_t all_bits(std::size_t ranks) {
  return ranks == 64 ? ~std::uint64_t{0} : bit(static_cast<std::int32_t>(ranks)) - 1;
}

std::string place(std::int32_t rank, BufferRole buffer, std::int32_t row) {
  return fmt::format("rank {}'s {} at row {}", rank, name(buffer), row);
}

}  // namespace

SymbolicMemory::SymbolicMemory(std::span<const Plan> plans, const Matching& matching,
                               const CounterNumbers& numbers, const Credits& credits, Findings& findings)
    : plans_(plans), matching_(matching), numbers_(numbers), credits_(credits), findings_(findings) {
  grids_ = cut_grids(plans, all_links());
  fill_operands();
  find_operand_runs();
}

std::vector<RowLink> SymbolicMemory::all_links() const {
  std::vector<RowLink> links;
  for (const Transfer& transfer : matching_.transfers) {
    links.push_back({transfer.source, transfer.target, transfer.from, transfer.to});
  }
  for (const Plan& plan : plans_) {
    for (const Message& each : plan.messages) {
      if (each.kind == MessageKind::copy || each.kind == MessageKind::store) {
        links.push_back({plan.rank, each.peer, each.source, each.destination});
      }
    }
  }
  for (const auto& members : matching_.collectives) {
    const Message& first = message(0, members[0]);
    for (std::int32_t rank = 0; rank < std::ssize(plans_); ++rank) {
      const Message& mine = message(rank, members[static_cast<std::size_t>(rank)]);
      if (first.kind == MessageKind::all_reduce) {
        links.push_back({0, rank, first.source, mine.source});
        continue;
      }
      for (std::int32_t peer = 0; peer < std::ssize(plans_); ++peer) {
        const Message& theirs = message(peer, members[static_cast<std::size_t>(peer)]);
        if (first.kind == MessageKind::reduce_scatter) {
          Region part = mine.source;
          part.rows = theirs.destination.rows;
          part.row += peer * part.rows;
          links.push_back({rank, peer, part, theirs.destination});
        } else {
          Region part = theirs.destination;
          part.rows = mine.source.rows;
          part.row += rank * part.rows;
          links.push_back({rank, peer, mine.source, part});
        }
      }
    }
  }
  return links;
}

void SymbolicMemory::fill_operands() {
  for (const Plan& plan : plans_) {
    for (const auto& [role, content] :
         {std::pair{BufferRole::a, Content::operand_a}, {BufferRole::b, Content::operand_b}}) {
      Grid& operand = grid(plan.rank, role);
      for (std::size_t band = 0; band < operand.bands(); ++band) {
        for (std::size_t column = 0; column < operand.columns(); ++column) {
          operand.cell(band, column).value = {bit(plan.rank), operand.first_row(band),
                                              operand.first_col(column), content};
        }
      }
    }
  }
}

void SymbolicMemory::find_operand_runs() {
  const Problem& problem = plans_[0].problem;
  const auto counts = problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::rows
                          ? count_rows_between(problem)
                          : std::vector<std::vector<std::int64_t>>{};
  for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
    const auto m = static_cast<std::int32_t>(gemm_shape(problem, rank).rows);
    const auto n = static_cast<std::int32_t>(problem.n);
    auto& a_runs = a_runs_.emplace_back(1);
    auto& b_runs = b_runs_.emplace_back();
    const auto shards = [&](std::int32_t extent) {
      std::vector<OperandRun> runs;
      const std::int32_t rows = extent / problem.ranks;
      for (std::int32_t source = 0; source < problem.ranks; ++source)
        runs.push_back({source * rows, rows, source, 0});
      return runs;
    };
    if (gathers(problem, Operand::a)) {
      a_runs[0] = shards(m);
    } else if (problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::heads) {
      a_runs.clear();
      for (std::int32_t source = 0; source < problem.ranks; ++source)
        a_runs.push_back({{0, m, source, rank * m}});
    } else if (!counts.empty()) {
      std::int32_t first = 0;
      for (std::int32_t source = 0; source < problem.ranks; ++source) {
        const auto& sent = counts[static_cast<std::size_t>(source)];
        std::int64_t row = 0;
        for (std::int32_t target = 0; target < rank; ++target) row += sent[static_cast<std::size_t>(target)];
        const auto rows = static_cast<std::int32_t>(sent[static_cast<std::size_t>(rank)]);
        if (rows > 0) a_runs[0].push_back({first, rows, source, static_cast<std::int32_t>(row)});
        first += rows;
      }
    } else {
      a_runs[0] = {{0, m, rank, 0}};
    }
    b_runs = gathers(problem, Operand::b) ? shards(n) : std::vector<OperandRun>{{0, n, rank, 0}};
  }
}

template <typename Visit>
void SymbolicMemory::for_each_cell(std::int32_t rank, const Region& region, const Message* moving,
                                   Visit&& visit) {
  if (region.rows == 0) return;
  Grid& cells = grid(rank, region.buffer);
  const bool all = moving == nullptr || moving->cols == none;
  const std::size_t first_column = all ? 0 : cells.column(moving->col);
  const std::size_t end_column = all ? cells.columns() : cells.column(moving->col + moving->cols);
  const std::size_t end = cells.band(region.row + region.rows);
  for (std::size_t band = cells.band(region.row); band < end; ++band) {
    for (std::size_t column = first_column; column < end_column; ++column)
      visit(cells.cell(band, column), cells.first_row(band));
  }
}

void SymbolicMemory::read(Cell& cell, const Event& reader, const Knowledge& knowledge, std::int32_t rank,
                          BufferRole buffer, std::int32_t row, bool remember) {
  if (!is_known(cell.writer, knowledge, plans_, numbers_)) {
    findings_.add(Violation::race, "{} reads {}, which {} may not have written yet", describe(reader, plans_),
                  place(rank, buffer, row), describe(cell.writer, plans_));
  } else if (reader.is_tile && cell.value.content == Content::garbage) {
    // Messages may: they also move the columns next to a ragged tile that nobody has written.
    findings_.add(Violation::race, "{} reads {}, which may not be written yet", describe(reader, plans_),
                  place(rank, buffer, row));
  }
  if (!remember) return;
  reads_.push_back({reader, cell.last_read});
  cell.last_read = static_cast<std::int32_t>(reads_.size()) - 1;
}

void SymbolicMemory::write(Cell& cell, const Value& value, const Event& writer, const Knowledge& knowledge,
                           std::int32_t rank, BufferRole buffer, std::int32_t row) {
  credits_.check_write(writer, knowledge, rank, [&] { return place(rank, buffer, row); });
  if (!is_known(cell.writer, knowledge, plans_, numbers_)) {
    findings_.add(Violation::race, "{} writes {}, which {} may write later", describe(writer, plans_),
                  place(rank, buffer, row), describe(cell.writer, plans_));
  }
  for (std::int32_t entry = cell.last_read; entry != none;
       entry = reads_[static_cast<std::size_t>(entry)].earlier) {
    const Event& reader = reads_[static_cast<std::size_t>(entry)].reader;
    if (is_known(reader, knowledge, plans_, numbers_)) continue;
    findings_.add(Violation::race, "{} writes {}, which {} may read before or after",
                  describe(writer, plans_), place(rank, buffer, row), describe(reader, plans_));
  }
  cell.value = value;
  cell.writer = writer;
  cell.last_read = none;
}

void SymbolicMemory::run_tile(std::int32_t rank, std::int32_t index, std::span<const Knowledge> operands,
                              const Knowledge& knowledge) {
  const Plan& plan = plan_of(rank);
  const Tile& tile = plan.tiles[static_cast<std::size_t>(index)];
  for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
    check_operand(rank, index, tile, operands, tile.a_buffer, Content::operand_a, block,
                  tile.a_row + block * plan.a_blocks.row_stride);
  }
  check_operand(rank, index, tile, operands, tile.b_buffer, Content::operand_b, 0, tile.b_row);
  const std::uint64_t ranks =
      tile.addend_row == none ? bit(rank) : add_partials(rank, index, tile, knowledge);
  store_tile(rank, index, tile, ranks, knowledge);
}

void SymbolicMemory::check_operand(std::int32_t rank, std::int32_t index, const Tile& tile,
                                   std::span<const Knowledge> knowledge, BufferRole buffer, Content content,
                                   std::int32_t block, std::int32_t row) {
  const bool is_a = content == Content::operand_a;
  const std::int32_t first = is_a ? tile.row : tile.col;
  const std::int32_t count = is_a ? tile.rows : tile.cols;
  const auto& runs = is_a ? a_runs_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(block)]
                          : b_runs_[static_cast<std::size_t>(rank)];
  // The caller's operands are never written, so who reads them does not matter.
  const bool remember = buffer == BufferRole::gathered;
  const auto expected = [&](std::int32_t position) {
    const auto after =
        std::upper_bound(runs.begin(), runs.end(), position,
                         [](std::int32_t value, const OperandRun& run) { return value < run.first; });
    const OperandRun& run = *(after - 1);
    return std::pair{run.rank, run.row + position - run.first};
  };
  Grid& cells = grid(rank, buffer);
  const std::size_t end = cells.band(row + count);
  for (std::size_t band = cells.band(row); band < end; ++band) {
    const std::int32_t begin = cells.first_row(band) - row;
    const std::int32_t last = cells.first_row(band + 1) - 1 - row;
    for (std::size_t column = 0; column < cells.columns(); ++column) {
      Cell& cell = cells.cell(band, column);
      const std::int32_t part =
          knowledge.size() == 1 ? 0 : cells.first_col(column) / plan_of(rank).wait_depth;
      read(cell, {rank, index, true}, knowledge[static_cast<std::size_t>(part)], rank, buffer,
           cells.first_row(band), remember);
      const auto [source, source_row] = expected(first + begin);
      const bool right = cell.value.content == content && cell.value.ranks == bit(source) &&
                         cell.value.row == source_row && cell.value.col == cells.first_col(column) &&
                         expected(first + last) == std::pair{source, source_row + last - begin};
      if (right || cell.value.content == Content::garbage) continue;
      findings_.add(Violation::wrong_value,
                    "rank {}'s tile {} reads {}, which does not hold rows {} to {} of {} of rank {}", rank,
                    index, place(rank, buffer, cells.first_row(band)), source_row, source_row + last - begin,
                    is_a ? "A" : "B", source);
    }
  }
}

std::uint64_t SymbolicMemory::add_partials(std::int32_t rank, std::int32_t index, const Tile& tile,
                                           const Knowledge& knowledge) {
  const Plan& plan = plan_of(rank);
  Grid& inbox = grid(rank, BufferRole::inbox);
  std::uint64_t ranks = bit(rank);
  for (std::int32_t partial = 0; partial < plan.addends.count; ++partial) {
    const std::int32_t source = partial < rank ? partial : partial + 1;
    const std::int32_t row = tile.addend_row + partial * plan.addends.row_stride;
    const std::size_t end = inbox.band(row + tile.rows);
    const std::size_t end_column = inbox.column(tile.col + tile.cols);
    for (std::size_t band = inbox.band(row); band < end; ++band) {
      for (std::size_t column = inbox.column(tile.col); column < end_column; ++column) {
        Cell& cell = inbox.cell(band, column);
        read(cell, {rank, index, true}, knowledge, rank, BufferRole::inbox, inbox.first_row(band));
        const Value expected{bit(source), tile.row + inbox.first_row(band) - row, inbox.first_col(column),
                             Content::partial};
        if (cell.value == expected || cell.value.content == Content::garbage) continue;
        findings_.add(
            Violation::wrong_value,
            "rank {}'s tile {} adds {}, which does not hold rank {}'s partial result from row {} on", rank,
            index, place(rank, BufferRole::inbox, inbox.first_row(band)), source, expected.row);
      }
    }
    ranks |= bit(source);
  }
  return ranks;
}

void SymbolicMemory::store_tile(std::int32_t rank, std::int32_t index, const Tile& tile, std::uint64_t ranks,
                                const Knowledge& knowledge) {
  const Plan& plan = plan_of(rank);
  for_each_stored_piece(
      plan, tile, [&](std::int32_t first, std::int32_t owner, std::int32_t row, std::int32_t rows) {
        for (const Plan& target : plans_) {
          if (owner != every_rank && owner != target.rank) continue;
          Grid& cells = grid(target.rank, tile.buffer);
          const std::size_t end = cells.band(row + rows);
          const std::size_t end_column = cells.column(tile.store_col + tile.cols);
          for (std::size_t band = cells.band(row); band < end; ++band) {
            for (std::size_t column = cells.column(tile.store_col); column < end_column; ++column) {
              const Value value{ranks, tile.row + first + cells.first_row(band) - row,
                                tile.col + cells.first_col(column) - tile.store_col, Content::partial};
              write(cells.cell(band, column), value, {rank, index, true}, knowledge, target.rank, tile.buffer,
                    cells.first_row(band));
            }
          }
        }
      });
}

void SymbolicMemory::move(const Region& from, std::int32_t from_rank, const Event& reader,
                          const Knowledge& reader_knowledge, const Region& to, std::int32_t to_rank,
                          const Event& writer, const Knowledge& writer_knowledge, const Message* moving) {
  std::vector<Value> values;
  for_each_cell(from_rank, from, moving, [&](Cell& cell, std::int32_t row) {
    read(cell, reader, reader_knowledge, from_rank, from.buffer, row);
    values.push_back(cell.value);
  });
  std::size_t next = 0;
  for_each_cell(to_rank, to, moving, [&](Cell& cell, std::int32_t row) {
    write(cell, values[next++], writer, writer_knowledge, to_rank, to.buffer, row);
  });
}

void SymbolicMemory::run_copy(std::int32_t rank, std::int32_t index, const Knowledge& knowledge) {
  const Message& copy = message(rank, index);
  const Event event{rank, index, false};
  move(copy.source, rank, event, knowledge, copy.destination, copy.peer, event, knowledge, &copy);
}

void SymbolicMemory::run_transfer(const Transfer& transfer, const Knowledge& source,
                                  const Knowledge& target) {
  move(transfer.from, transfer.source, {transfer.source, transfer.send_message, false}, source, transfer.to,
       transfer.target, {transfer.target, transfer.receive_message, false}, target);
}

SymbolicMemory::Value SymbolicMemory::sum(std::span<Cell* const> cells, std::int32_t rank,
                                          std::int32_t index) {
  Value total = cells[0]->value;
  for (const Cell* cell : cells.subspan(1)) {
    const Value& value = cell->value;
    if (value.content == Content::garbage || total.content == Content::garbage) return {};
    if (value.content != Content::partial || total.content != Content::partial || value.row != total.row ||
        value.col != total.col || (value.ranks & total.ranks) != 0) {
      findings_.add(Violation::wrong_value,
                    "{} adds different parts: row {}, column {} of C and row {}, column {}",
                    describe({rank, index}, plans_), total.row, total.col, value.row, value.col);
      return {};
    }
    total.ranks |= value.ranks;
  }
  return total;
}

void SymbolicMemory::run_collective(std::span<const std::int32_t> members, std::span<const Knowledge> starts,
                                    const Knowledge& together) {
  const MessageKind kind = message(0, members[0]).kind;
  const std::size_t ranks = plans_.size();
  const auto event = [&](std::size_t rank) {
    return Event{static_cast<std::int32_t>(rank), members[rank], false};
  };
  const auto message_of = [&](std::size_t rank) -> const Message& {
    return message(static_cast<std::int32_t>(rank), members[rank]);
  };

  std::vector<std::vector<Cell*>> sources(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Region& source = message_of(rank).source;
    const auto owner = static_cast<std::int32_t>(rank);
    for_each_cell(owner, source, nullptr, [&](Cell& cell, std::int32_t row) {
      read(cell, event(rank), starts[rank], owner, source.buffer, row, kind != MessageKind::all_reduce);
      sources[rank].push_back(&cell);
    });
  }

  std::vector<Value> result;  // all_reduce and reduce_scatter: the sum; all_gather: the parts in rank order
  if (kind == MessageKind::all_gather) {
    for (const auto& part : sources) {
      for (const Cell* cell : part) result.push_back(cell->value);
    }
  } else {
    std::vector<Cell*> summands(ranks);
    for (std::size_t position = 0; position < sources[0].size(); ++position) {
      for (std::size_t rank = 0; rank < ranks; ++rank) summands[rank] = sources[rank][position];
      result.push_back(sum(summands, 0, members[0]));
    }
  }

  std::size_t next = 0;  // reduce_scatter continues where the rank before ended
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Region& destination = message_of(rank).destination;
    const auto owner = static_cast<std::int32_t>(rank);
    if (kind != MessageKind::reduce_scatter) next = 0;
    for_each_cell(owner, destination, nullptr, [&](Cell& cell, std::int32_t row) {
      write(cell, result[next++], event(rank), together, owner, destination.buffer, row);
    });
  }
}

void SymbolicMemory::check_end(std::span<const Knowledge> ends) {
  for (const Plan& plan : plans_) {
    for (const BufferRole role :
         {BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered}) {
      if (!plan.buffer(role).peer_written) continue;
      for_each_cell(plan.rank, {role, 0, static_cast<std::int32_t>(plan.buffer(role).rows)}, nullptr,
                    [&](Cell& cell, std::int32_t row) {
                      if (is_known(cell.writer, ends[static_cast<std::size_t>(plan.rank)], plans_, numbers_))
                        return;
                      findings_.add(Violation::race, "{} may still write {} when the rank's run is over",
                                    describe(cell.writer, plans_), place(plan.rank, role, row));
                    });
    }
    const Output& output = plan.output;
    const Reorder& reorder = output.reorder;
    const auto cols = static_cast<std::int32_t>(output.cols);
    first_rows_of_runs_.assign(1, 0);
    for (const RowOrigin& origin : output.origins) {
      first_rows_of_runs_.push_back(first_rows_of_runs_.back() + origin.rows);
    }
    if (reorder.first_row.empty()) {
      check_output(plan.rank, 0, static_cast<std::int32_t>(output.rows), 0, cols, 0);
      continue;
    }
    std::size_t block = 0;
    for (std::int64_t row = 0; row < output.rows; row += reorder.block_rows) {
      const auto rows =
          static_cast<std::int32_t>(std::min<std::int64_t>(reorder.block_rows, output.rows - row));
      for (std::int32_t col = 0; col < cols; col += reorder.block_cols, ++block) {
        check_output(plan.rank, row, rows, col, std::min(reorder.block_cols, cols - col),
                     reorder.first_row[block]);
      }
    }
  }
}

void SymbolicMemory::check_output(std::int32_t rank, std::int64_t out_row, std::int32_t rows,
                                  std::int32_t col, std::int32_t cols, std::int32_t buffer_row) {
  if (rows == 0) return;
  const Output& output = plan_of(rank).output;
  Grid& cells = grid(rank, BufferRole::out);
  const std::size_t end = cells.band(buffer_row + rows);
  const std::size_t end_column = cells.column(cols);
  for (std::size_t band = cells.band(buffer_row); band < end; ++band) {
    const std::int64_t row = out_row + cells.first_row(band) - buffer_row;
    const std::int64_t last = out_row + cells.first_row(band + 1) - 1 - buffer_row;
    const auto after = std::upper_bound(first_rows_of_runs_.begin(), first_rows_of_runs_.end(), row);
    const std::int64_t run_row = *(after - 1);
    const RowOrigin& origin =
        output.origins[static_cast<std::size_t>(after - first_rows_of_runs_.begin()) - 1];
    const std::uint64_t ranks = origin.rank == none ? all_bits(plans_.size()) : bit(origin.rank);
    for (std::size_t column = 0; column < end_column; ++column) {
      const Value expected{ranks, static_cast<std::int32_t>(origin.row + row - run_row),
                           origin.col + col + cells.first_col(column), Content::partial};
      if (cells.cell(band, column).value == expected && last < run_row + origin.rows) continue;
      findings_.add(Violation::wrong_value, "{} does not hold row {}, column {} of {}",
                    place(rank, BufferRole::out, cells.first_row(band)), expected.row, expected.col,
                    origin.rank == none ? std::string("the sum over all ranks")
                                        : fmt::format("rank {}'s C", origin.rank));
    }
  }
}

}  // namespace flashoverlap
