#include "model/costs.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "model/gemm_time.hpp"
#include "model/operand_lines.hpp"
#include "plan/box_steps.hpp"
#include "plan/grouping.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

double bytes_between_ranks(const Plan& plan, std::span<const Part> parts) {
  double bytes = 0;
  for (const Part& part : parts) {
    if (part.peer != plan.rank) bytes += bytes_of(plan, part.region);
  }
  return bytes;
}

/// Parts that an exchange leaves on their rank are copied after it.
double kept_microseconds(const Plan& plan, const Message& message, const Machine& machine) {
  double us = 0;
  for (const Part& part : message.sends) {
    if (part.peer == plan.rank && part.region.rows > 0)
      us += machine.launch_microseconds + copied_microseconds(machine, bytes_of(plan, part.region));
  }
  return us;
}

/// Elements of 16 bits, at this many times the rate of a copy.
double elements_per_microsecond(const Machine& machine, double times) {
  constexpr double bytes = 2;
  return machine.memory_gigabytes_per_second * 1e3 * times / bytes;
}

/// The operand of which there is more, as tiles divide it.
struct DrawnOperand {
  double parts = 0;    ///< rows or columns of a tile each
  double side = 0;     ///< of a tile, that many rows or columns
  double readers = 0;  ///< tiles that have the same part, in a cluster once
  double drawers = 0;  ///< that can load different parts at a time
};

DrawnOperand drawn_operand(const KernelTile& tile, const Shape& gemm, int multiprocessors) {
  const auto row_blocks =
      static_cast<double>(divide_up(gemm.rows, std::int64_t{tile.rows} * tile.cluster_rows));
  const auto col_blocks = static_cast<double>(divide_up(gemm.cols, tile.cols));
  if (gemm.rows <= gemm.cols) {
    return {.parts = col_blocks,
            .side = static_cast<double>(tile.cols),
            .readers = std::max(1.0, row_blocks),
            .drawers = static_cast<double>(multiprocessors) / tile.cluster_rows};
  }
  return {.parts = row_blocks * tile.cluster_rows,
          .side = static_cast<double>(tile.rows),
          .readers = std::max(1.0, col_blocks),
          .drawers = static_cast<double>(multiprocessors)};
}

}  // namespace

double copied_microseconds(const Machine& machine, double bytes) {
  return 2 * bytes / (machine.memory_gigabytes_per_second * 1e3);
}

double operations_microseconds(const Machine& machine, const KernelTile& tile, double k) {
  const double operations_per_microsecond = machine.teraflops * 1e6 / machine.multiprocessors;
  return 2.0 * tile.rows * tile.cols * k / operations_per_microsecond;
}

namespace {

/// A wave at least, on however few multiprocessors: what multiplying takes, or most of a lone wave, in which
/// small tiles wait for their own loads.
double undisturbed_microseconds(const Machine& machine, const KernelCosts& kernel, double k) {
  constexpr double own_share = 0.85;  // of a lone wave: of 270 GEMMs by 29 to 66 multiprocessors on 2 H200
  const Curve::Point& shallow = kernel.wave.points.front();  // mostly the tile's begin and end
  const double step_us = operations_microseconds(machine, kernel.tile, 1);
  return std::max(shallow.microseconds + std::max(0.0, k - shallow.size) * step_us,
                  own_share * kernel.lone_wave.microseconds(k));
}

}  // namespace

double wave_microseconds(const Machine& machine, const KernelTile& tile, OperandLayout b_layout,
                         std::int64_t k, double waves, int multiprocessors) {
  const auto matches = [&](const KernelCosts& kernel) {
    return kernel.tile == tile && kernel.b_layout == b_layout;
  };
  const auto kernel = std::ranges::find_if(machine.kernels, matches);
  if (kernel != machine.kernels.end()) {
    const std::int64_t depth = machine_kernels(machine).step_depth;
    const auto multiplied = static_cast<double>(divide_up(k, depth) * depth);
    const double lone_us = kernel->lone_wave.microseconds(multiplied);
    const double wave_us = kernel->wave.microseconds(multiplied);
    // Blocks of narrow tiles come apart after some waves, and then share less of what they load.
    constexpr double together = 2;
    const double us = waves <= 1 ? lone_us : waves <= together ? std::min(lone_us, wave_us) : wave_us;
    if (multiprocessors >= machine.multiprocessors) return us;
    const double least_us = std::min(us, undisturbed_microseconds(machine, *kernel, multiplied));
    constexpr double kept = 0.15;  // of a wave, on however few
    const double share = static_cast<double>(multiprocessors) / machine.multiprocessors;
    return std::max(least_us, us * (kept + (1 - kept) * share));
  }
  return operations_microseconds(machine, tile, static_cast<double>(k)) + machine.tile_microseconds;
}

double least_memory_microseconds(const Machine& machine, const Shape& gemm, std::int64_t k) {
  const double elements = static_cast<double>(gemm.rows + gemm.cols) * static_cast<double>(k) +
                          static_cast<double>(gemm.rows) * static_cast<double>(gemm.cols);
  constexpr double reached = 1.05;  // times the rate of a copy, as most is read
  return elements / elements_per_microsecond(machine, reached);
}

double memory_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                           int multiprocessors, bool share_k) {
  // Fitted to 1,355 kernels for 84 GEMMs on an H200 (docs/log/predictions.md).
  constexpr double without_waiting = 1.14;  // times the rate of a copy
  constexpr double answer_us = 1.4;         // of the memory
  constexpr double ring_elements = 98304;   // of A and B, that loads are ahead of what a block multiplies
  constexpr double read_again = 1.3;        // from the L2 cache
  const DrawnOperand drawn = drawn_operand(tile, gemm, multiprocessors);
  const double different = std::max(1.0, drawn.drawers / drawn.readers);
  const double drawing = share_k ? different : std::min(drawn.parts, different);
  const double under_way = drawing * ring_elements * drawn.side / (tile.rows + tile.cols);
  const double full_rate_us =
      (drawn.readers > 1 ? read_again : 1) / elements_per_microsecond(machine, without_waiting);
  const double element_us = std::hypot(full_rate_us, answer_us / under_way);
  const double waves = share_k ? drawn.parts / drawing : std::ceil(drawn.parts / drawing);
  const double elements = waves * drawing * drawn.side * static_cast<double>(k);
  return std::max(least_memory_microseconds(machine, gemm, k), elements * element_us);
}

double sustained_microseconds(const Machine& machine, double microseconds, int multiprocessors) {
  // Parts of the multiprocessors: up to one the GPU keeps its clocks, from the other on it is as with all.
  // Fitted to runs of 47 shapes by 29 to 132 of them on 2 H200.
  constexpr double kept = 0.5;
  constexpr double lost = 0.8;
  const double first = machine.throttled.points.front().size;
  const double size = std::max(first, microseconds);
  const double slowdown = machine.throttled.microseconds(size) / size;
  const double part = static_cast<double>(multiprocessors) / machine.multiprocessors;
  return microseconds * (1 + (slowdown - 1) * std::clamp((part - kept) / (lost - kept), 0.0, 1.0));
}

double tile_entry_microseconds(const Problem& problem, int rank, const Schedule& schedule,
                               const Machine& machine, double waves) {
  const Shape gemm = gemm_shape(problem, rank);
  if (predicts_cublas(machine, problem, schedule))
    return cublas_microseconds(machine, gemm, problem.k, problem.b_layout) / waves;
  const KernelTile tile = kernel_tile(schedule);
  const KernelChoice kernel{tile, schedule.share_k};
  const int busy = busy_multiprocessors(kernel, gemm, schedule.multiprocessors);
  const double wave_us =
      unaligned_wave_microseconds(machine, kernel, gemm, problem.k, problem.b_layout, waves, busy);
  const double computed_us = sustained_microseconds(machine, waves * wave_us, busy);
  // With slices or groups it is their time that counts, and which rows are computed together.
  const bool at_once = schedule.strategy == Strategy::sequential || schedule.shots > 0;
  const double read_us = at_once ? memory_microseconds(machine, tile, gemm, problem.k,
                                                       schedule.multiprocessors, schedule.share_k)
                                 : least_memory_microseconds(machine, gemm, problem.k);
  return std::max(computed_us, read_us) / waves;
}

namespace {

constexpr int most_parts_each = 2;  ///< of the memory's rate, that one multiprocessor draws

/// What a block of `drawing` takes to read or write a tile of its plan this many times.
double drawn_microseconds(const Plan& plan, const Machine& machine, int times, std::int64_t drawing) {
  const Schedule& schedule = plan.schedule;
  const double bytes =
      1.0 * schedule.tile_rows * schedule.tile_cols * size_of(plan.problem.data_type) * times;
  const std::int64_t parts =
      std::clamp<std::int64_t>(drawing, machine.multiprocessors / most_parts_each, machine.multiprocessors);
  return bytes * static_cast<double>(parts) / (machine.memory_gigabytes_per_second * 1e3);
}

}  // namespace

double adding_microseconds(const Plan& plan, const Machine& machine) {
  const std::int64_t blocks = (std::ssize(plan.tiles) - product_count(plan)) * plan.schedule.cluster_rows;
  return machine.tile_microseconds + drawn_microseconds(plan, machine, plan.addends.count + 1, blocks);
}

double partials_microseconds(const Plan& plan, const Machine& machine) {
  constexpr int drawing = 1;  // most others multiply
  return drawn_microseconds(plan, machine, plan.addends.count, drawing);
}

int collective_multiprocessors(const Schedule& schedule, const Machine& machine) {
  const int cap = schedule.comm_multiprocessors;
  return cap > 0 ? std::min(cap, machine.comm_multiprocessors) : machine.comm_multiprocessors;
}

int free_multiprocessors(const Schedule& schedule, const Machine& machine, std::int64_t entries) {
  const int present = std::min(workers(schedule), machine.multiprocessors / schedule.cluster_rows);
  const auto occupied = static_cast<int>(std::min<std::int64_t>(present, entries)) * schedule.cluster_rows;
  return machine.multiprocessors - occupied;
}

double stored_microseconds(const Machine& machine, int ranks, double bytes) {
  constexpr double large = 1e9;
  return bytes * machine.store_microseconds(ranks, large) / large;
}

double tiles_stored_microseconds(const Machine& machine, const Problem& problem, double bytes, bool to_all) {
  // Tiles for several ranks, one after the other. Those that go to all together are as fast as large stores.
  // Fitted to 142 ReduceScatters and AllReduces on 4 H100 and H200, and taken for routed rows too.
  constexpr double to_several = 1.15;
  // Into rows of the result that begin between lines of 128 bytes: fitted to 225 AllReduces and 61 GEMM +
  // AllToAll on 2 H200.
  constexpr double between_lines = 1.2;
  double slowdown = 1;
  if (problem.ranks > 2 && !to_all) slowdown *= to_several;
  const bool into_results = to_all || problem.operation == Operation::gemm_all_to_all;
  if (into_results && problem.n % line_elements != 0) slowdown *= between_lines;
  return slowdown * stored_microseconds(machine, problem.ranks, bytes);
}

double store_delay_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                double tile_us) {
  // Fitted to 520 ReduceScatters and AllReduces on 4 H100, and taken for 89 on 4 H200; for 2 ranks, where a
  // block stores for one other only, to 15 ReduceScatters on 2 H200.
  const double slowest_us = std::min(problem.ranks > 2 ? 20.0 : 6.0, 0.5 * tile_us);
  if (!machine_kernels(machine).stores_aside) return slowest_us;
  const double boxes = static_cast<double>(divide_up(schedule.tile_cols, box_cols));
  const auto steps = static_cast<double>(divide_up(problem.k, step_cols));
  const double share = std::min(1.0, boxes * steps_per_box(schedule, problem.k) / steps);
  return slowest_us + share * tile_us;
}

double least_store_microseconds(const Schedule& schedule, const Machine& machine, double bytes) {
  const double by_block = machine.block_store_gigabytes_per_second;
  if (by_block == 0) return 0;
  const int blocks =
      schedule.comm_multiprocessors > 0 ? schedule.comm_multiprocessors : default_store_multiprocessors;
  return bytes / (blocks * by_block * 1e3);
}

namespace {

/// Whether tiles are computed or not.
TransferTime same_time(double us) { return {us, us}; }

/// The least with a cap that is not above this one, or with the smallest. More multiprocessors do not make a
/// collective slower: what it took longer with them is the measurement's noise. None where there is no curve.
std::optional<double> least_microseconds(const std::map<int, Collectives>& by_cap, MessageKind kind,
                                         int ranks, double bytes, int cap) {
  std::optional<double> least_us;
  for (const auto& [measured, collectives] : by_cap) {
    if (!collectives.contains(kind) || (measured > cap && least_us)) continue;
    const double slower = std::max(1.0, static_cast<double>(measured) / cap);
    const double us = slower * collective_microseconds(collectives, kind, ranks, bytes);
    least_us = std::min(least_us.value_or(us), us);
  }
  return least_us;
}

}  // namespace

double collective_slowdown(const Machine& machine, const Schedule& schedule, MessageKind kind) {
  const int cap =
      schedule.comm_multiprocessors > 0 ? schedule.comm_multiprocessors : machine.comm_multiprocessors;
  // With the largest cap that is not above this one, or with the smallest.
  auto measured = machine.collective_slowdowns.upper_bound(cap);
  if (measured != machine.collective_slowdowns.begin()) --measured;
  if (measured == machine.collective_slowdowns.end()) return 1;
  const auto slowdown = measured->second.find(kind);
  return slowdown == measured->second.end() ? 1 : slowdown->second;
}

bool last_has_no_cap(const Problem& problem, MessageKind kind) {
  return kind != MessageKind::exchange && !communicates_first(problem.operation);
}

double capped_collective_microseconds(int ranks, const Schedule& schedule, const Machine& machine,
                                      MessageKind kind, double bytes, bool during_gemm) {
  if (const int cap = schedule.comm_multiprocessors; cap > 0) {
    std::optional<double> us;
    if (!during_gemm) us = least_microseconds(machine.capped, kind, ranks, bytes, cap);
    if (!us) us = least_microseconds(machine.during_gemm, kind, ranks, bytes, cap);
    if (us) return *us;
  }
  const double slower =
      static_cast<double>(machine.comm_multiprocessors) / collective_multiprocessors(schedule, machine);
  return slower * machine.collective_microseconds(kind, ranks, bytes);
}

double bytes_of(const Plan& plan, const Region& region) {
  return static_cast<double>(region.rows) * static_cast<double>(plan.buffer(region.buffer).cols) *
         size_of(plan.problem.data_type);
}

double bytes_to_peers(const Plan& plan, const Tile& tile) {
  std::int64_t rows = 0;
  if (tile.row_map != none) {
    for (std::int32_t row = 0; row < tile.rows; ++row) rows += stored_at(plan, tile, row).rank != plan.rank;
  } else if (tile.rank == every_rank) {
    rows = std::int64_t{tile.rows} * (plan.problem.ranks - 1);
  } else if (tile.rank != plan.rank) {
    rows = tile.rows;
  }
  return static_cast<double>(rows * tile.cols * size_of(plan.problem.data_type));
}

bool writes_to_peer(const Plan& plan, const Message& message) {
  return (message.kind == MessageKind::copy || message.kind == MessageKind::store) &&
         message.peer != plan.rank;
}

double transferred_bytes(const Plan& plan, const Message& message) {
  switch (message.kind) {
    case MessageKind::all_reduce:
    case MessageKind::reduce_scatter: return bytes_of(plan, message.source);
    case MessageKind::copy:
    case MessageKind::store:
      return static_cast<double>(message.source.rows * moved_cols(plan, message) *
                                 size_of(plan.problem.data_type));
    case MessageKind::all_gather: return bytes_of(plan, message.destination);
    case MessageKind::exchange:
      return std::max(bytes_between_ranks(plan, message.sends), bytes_between_ranks(plan, message.receives));
    case MessageKind::signal: return 0;
  }
  return 0;
}

namespace {

double store_microseconds(const Plan& plan, const Message& message, const Machine& machine, double bytes,
                          bool follows_at_once) {
  const int ranks = plan.problem.ranks;
  const double more_us = stored_microseconds(machine, ranks, bytes);
  const double us = follows_at_once ? more_us : machine.store_microseconds(ranks, bytes);
  if (!is_for_kernel(plan, message))
    return std::max(us, least_store_microseconds(plan.schedule, machine, bytes));
  // All blocks store and load the same rows at the same time: fitted to 174 AllGathers on 2 H200.
  constexpr double at_once = 1.4;
  if (plan.schedule.shots > 0) return at_once * us;
  // While the GEMM loads its operands. Whole rows lose nothing by that. A part of k is stored to one or
  // two ranks by two warps of each multiprocessor, to more by one: fitted to 120 AllGathers on 4 H200. Where
  // there are more tiles than workers, most parts go to one of several ranks, and each is announced before
  // the next one begins: fitted to one AllGather in 2, 4 and 8 parts there.
  constexpr double announced_us = 3;
  // Clusters load less: fitted to 60 AllGathers on 2 H200.
  const double next_to_loads = ranks > 3 ? 1.5 : plan.schedule.cluster_rows > 1 ? 1.15 : 1.3;
  if (goes_rank_by_rank(plan, message)) return more_us;
  const bool has_late_tiles = std::ssize(plan.tiles) > workers(plan.schedule);
  return ranks > 2 && has_late_tiles && !gathers_along_k(plan.problem) ? more_us + announced_us
                                                                       : next_to_loads * more_us;
}

}  // namespace

TransferTime transfer_time(const Plan& plan, const Message& message, const Machine& machine, bool is_capped,
                           bool follows_at_once) {
  const double bytes = transferred_bytes(plan, message);
  const int ranks = plan.problem.ranks;
  const auto collective_time = [&](double of_matrix) {
    if (!is_capped) return same_time(machine.collective_microseconds(message.kind, ranks, of_matrix));
    const auto us = [&](bool during_gemm) {
      return capped_collective_microseconds(plan.problem.ranks, plan.schedule, machine, message.kind,
                                            of_matrix, during_gemm);
    };
    return TransferTime{us(false), us(true)};
  };
  if (message.kind == MessageKind::exchange) {
    const double kept_us = kept_microseconds(plan, message, machine);
    if (bytes == 0) return same_time(kept_us);
    // An all-to-all of a matrix moves all of it but the part that a rank keeps.
    const TransferTime moved = collective_time(bytes * ranks / (ranks - 1));
    return {kept_us + moved.alone_us, kept_us + moved.during_gemm_us};
  }
  if (bytes == 0) return same_time(0);
  switch (message.kind) {
    case MessageKind::copy:
    case MessageKind::store:
      if (message.peer == plan.rank) return same_time(copied_microseconds(machine, bytes));
      if (message.kind == MessageKind::copy) return same_time(machine.copy_microseconds(ranks, bytes));
      return same_time(store_microseconds(plan, message, machine, bytes, follows_at_once));
    default: return collective_time(bytes);
  }
}

}  // namespace flashoverlap
