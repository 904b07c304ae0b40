#include "flashoverlap/problem.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/schedule.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

bool communicates_first(Operation operation) {
  return operation == Operation::all_gather_gemm || operation == Operation::all_to_all_gemm;
}

bool gathers(const Problem& problem, Operand operand) {
  return problem.operation == Operation::all_gather_gemm && problem.gathered == operand;
}

OperandLayout layout_of(const Problem& problem, Operand operand) {
  return operand == Operand::a ? problem.a_layout : problem.b_layout;
}

bool gathers_along_k(const Problem& problem) {
  return problem.operation == Operation::all_gather_gemm &&
         layout_of(problem, problem.gathered) == OperandLayout::row_contiguous;
}

bool is_all_to_all(Operation operation) {
  return operation == Operation::gemm_all_to_all || operation == Operation::all_to_all_gemm;
}

namespace {

// Rows and columns in plans have 32 bits. The end of the largest tile entry must fit, even if it starts after
// the last row, and so must the rows of buffers with `ranks` matrices.
constexpr std::int64_t max_extent =
    std::numeric_limits<std::int32_t>::max() - std::int64_t{max_tile_side} * max_cluster_rows;

bool routes_rows(const Problem& problem) {
  return is_all_to_all(problem.operation) && problem.exchange == Exchange::rows;
}

void check_divisible(const Problem& problem, std::int64_t value, std::string_view field,
                     std::string_view why) {
  require(value % problem.ranks == 0, field, value,
          fmt::format("must be a multiple of ranks = {} {}", problem.ranks, why));
}

/// In the order of `Problem::expert_rows`.
std::int64_t sum(std::span<const std::int32_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// Of a list of `expert_rows`, what goes to `target`.
std::int64_t expert_rows_to(const Problem& problem, int source, int target) {
  const auto experts = static_cast<std::size_t>(problem.experts);
  return sum(std::span(at(problem.expert_rows, source))
                 .subspan(static_cast<std::size_t>(target) * experts, experts));
}

std::int64_t received_rows(const Problem& problem, int rank) {
  std::int64_t rows = 0;
  for (int source = 0; source < problem.ranks; ++source) rows += rows_between(problem, source, rank);
  return rows;
}

void check_extent(const Problem& problem, std::int64_t value, std::string_view field) {
  const std::int64_t largest = max_extent / problem.ranks;
  require(value >= 1 && value <= largest, field, value,
          fmt::format("must be between 1 and {} on {} ranks", largest, problem.ranks));
}

void check_expert_rows(const Problem& problem, int rank) {
  const bool routed = routes_rows(problem);
  const std::vector<std::int32_t>& list = at(problem.expert_rows, rank);
  const std::string field = fmt::format("expert_rows[{}]", rank);
  const std::int64_t entries = std::int64_t{problem.experts} * (routed ? problem.ranks : 1);
  require(std::ssize(list) == entries, field, fmt::format("{} entries", list.size()),
          fmt::format("must have {}, one for each expert{}", entries, routed ? " of every rank" : ""));
  // New routes are checked in every run, and words for each entry would take longer than planning.
  const auto negative = std::ranges::find_if(list, [](std::int32_t rows) { return rows < 0; });
  if (negative != list.end())
    throw InvalidArgument(fmt::format("{}[{}]", field, negative - list.begin()), *negative,
                          "must not be negative");
  const std::string added = fmt::format("{} rows in all", sum(list));
  if (routed)
    return require(sum(list) <= problem.m, field, added, fmt::format("must be at most m = {}", problem.m));
  const std::int64_t shard = problem.m / problem.ranks;
  require(sum(list) == shard, field, added, fmt::format("must be m / ranks = {}", shard));
}

void check_experts(const Problem& problem) {
  const bool gathered = gathers(problem, Operand::a) && !gathers_along_k(problem);
  require(problem.experts >= 1 && problem.experts <= max_experts, "experts", problem.experts,
          fmt::format("must be between 1 and {}", max_experts));
  require(problem.experts == 1 || !problem.expert_rows.empty(), "experts", problem.experts,
          "must be 1 without expert_rows");
  require(problem.capacity == 0 || (routes_rows(problem) && !problem.expert_rows.empty()), "capacity",
          problem.capacity, "must be 0 but for all-to-all by rows with expert_rows");
  if (problem.expert_rows.empty()) return;
  const std::string lists = fmt::format("{} lists", problem.expert_rows.size());
  require(routes_rows(problem) || gathered, "expert_rows", lists,
          "only all-to-all by rows and all_gather_gemm of rows of A take rows that are sorted by expert");
  require(std::ssize(problem.expert_rows) == problem.ranks, "expert_rows", lists,
          fmt::format("must have one list for each of ranks = {}", problem.ranks));
  require(problem.destinations.empty(), "destinations", fmt::format("{} lists", problem.destinations.size()),
          "must be empty where expert_rows says where rows go");
  check_extent(problem, problem.n * problem.experts, "n x experts");
  if (problem.b_layout == OperandLayout::row_contiguous)
    check_extent(problem, problem.k * problem.experts, "k x experts");
  for (int rank = 0; rank < problem.ranks; ++rank) check_expert_rows(problem, rank);
  if (problem.capacity == 0) return;
  check_extent(problem, problem.capacity, "capacity");
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const std::int64_t received = received_rows(problem, rank);
    require(received <= problem.capacity, fmt::format("rows that rank {} receives", rank), received,
            fmt::format("must be at most capacity = {}", problem.capacity));
  }
}

void check_destinations(const Problem& problem) {
  if (!problem.expert_rows.empty()) return;
  if (problem.destinations.empty()) {
    check_divisible(problem, problem.m, "m", "where every rank sends equal parts (no destinations given)");
    return;
  }
  require(std::ssize(problem.destinations) == problem.ranks, "destinations",
          fmt::format("{} lists", problem.destinations.size()),
          fmt::format("must have one list for each of ranks = {}", problem.ranks));
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto& rows = at(problem.destinations, rank);
    const std::string field = fmt::format("destinations[{}]", rank);
    require(std::ssize(rows) == problem.m, field, fmt::format("{} entries", rows.size()),
            fmt::format("must have one entry for each of m = {} rows", problem.m));
    const bool sorted = problem.operation == Operation::all_to_all_gemm;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const bool is_rank = rows[row] >= 0 && rows[row] < problem.ranks;
      const bool follows = !sorted || row == 0 || rows[row - 1] <= rows[row];
      if (is_rank && follows) continue;  // words for each row would take longer than planning
      throw InvalidArgument(fmt::format("{}[{}]", field, row), rows[row],
                            is_rank
                                ? "rows of all_to_all_gemm must be sorted by destination, as each part is "
                                  "sent as one piece"
                                : fmt::format("must be a rank between 0 and {}", problem.ranks - 1));
    }
  }
}

}  // namespace

void validate(const Problem& problem) {
  require(problem.ranks >= 1 && problem.ranks <= max_ranks, "ranks", problem.ranks,
          fmt::format("must be between 1 and {}", max_ranks));
  check_extent(problem, problem.m, "m");
  check_extent(problem, problem.n, "n");
  check_extent(problem, problem.k, "k");
  require(problem.destinations.empty() || routes_rows(problem), "destinations",
          fmt::format("{} lists", problem.destinations.size()), "only all-to-all by rows takes destinations");
  require(problem.operation != Operation::all_to_all_gemm || problem.a_layout == OperandLayout::k_contiguous,
          "a_layout", name(problem.a_layout),
          "must be k_contiguous for all_to_all_gemm, which sends rows of A");
  check_experts(problem);
  if (routes_rows(problem)) return check_destinations(problem);
  switch (problem.operation) {
    case Operation::gemm_all_reduce: break;
    case Operation::gemm_reduce_scatter:
      return check_divisible(problem, problem.m, "m", "as every rank keeps the same number of rows");
    case Operation::all_gather_gemm:
      if (gathers_along_k(problem)) {
        return check_divisible(
            problem, problem.k, "k",
            "as every rank holds the same part of k of an operand whose rows are contiguous");
      }
      if (problem.gathered == Operand::a)
        return check_divisible(problem, problem.m, "m", "as every rank holds the same number of rows of A");
      return check_divisible(problem, problem.n, "n", "as every rank holds the same number of rows of B");
    case Operation::gemm_all_to_all:
      return check_divisible(problem, problem.n, "n", "as every rank receives the same number of columns");
    case Operation::all_to_all_gemm:
      return check_divisible(problem, problem.k, "k", "as every rank holds the same number of columns of A");
  }
}

Problem returning(const Problem& problem, std::int64_t n, std::int64_t k) {
  require(problem.operation == Operation::all_to_all_gemm && !problem.expert_rows.empty(), "operation",
          name(problem.operation), "must be all_to_all_gemm with expert_rows");
  Problem back = problem;
  back.operation = Operation::gemm_all_to_all;
  back.n = n;
  back.k = k;
  std::int64_t most_sent = 1;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    auto rows = at(back.expert_rows, rank).begin();
    for (int target = 0; target < problem.ranks; ++target) {
      const auto first = at(problem.expert_rows, target).begin() + std::ptrdiff_t{rank} * problem.experts;
      rows = std::copy_n(first, problem.experts, rows);
    }
    most_sent = std::max(most_sent, received_rows(problem, rank));
  }
  back.m = problem.capacity > 0 ? problem.capacity : most_sent;
  back.capacity = problem.capacity > 0 ? problem.m : 0;
  validate(back);
  return back;
}

std::int64_t a_rows(const Problem& problem, int rank) {
  if (!routes_rows(problem) || problem.expert_rows.empty()) return problem.m;
  return sum(at(problem.expert_rows, rank));
}

std::int32_t destination(const Problem& problem, int source, std::int64_t row) {
  if (!problem.expert_rows.empty()) {
    std::int32_t target = 0;
    while (row >= expert_rows_to(problem, source, target)) row -= expert_rows_to(problem, source, target++);
    return target;
  }
  if (problem.destinations.empty()) return static_cast<std::int32_t>(row / (problem.m / problem.ranks));
  return at(at(problem.destinations, source), row);
}

std::int64_t rows_between(const Problem& problem, int source, int target) {
  if (!problem.expert_rows.empty()) return expert_rows_to(problem, source, target);
  if (problem.destinations.empty()) return problem.m / problem.ranks;
  const auto& rows = at(problem.destinations, source);
  return std::count(rows.begin(), rows.end(), target);
}

std::vector<std::vector<std::int64_t>> count_rows_between(const Problem& problem) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::vector<std::vector<std::int64_t>> counts(ranks, std::vector<std::int64_t>(ranks, 0));
  for (std::size_t source = 0; source < ranks; ++source) {
    if (problem.destinations.empty()) {
      for (std::size_t target = 0; target < ranks; ++target)
        counts[source][target] = rows_between(problem, static_cast<int>(source), static_cast<int>(target));
    } else {
      for (const std::int32_t target : problem.destinations[source]) ++at(counts[source], target);
    }
  }
  return counts;
}

namespace {

/// In memory.
Shape operand_shape(const Problem& problem, Operand operand, std::int64_t rows) {
  Shape shape{rows, problem.k};
  if (layout_of(problem, operand) == OperandLayout::row_contiguous) std::swap(shape.rows, shape.cols);
  if (operand == Operand::b) shape.rows *= problem.experts;
  if (gathers(problem, operand)) shape.rows /= problem.ranks;
  return shape;
}

}  // namespace

Shape a_shape(const Problem& problem, int rank) {
  if (problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::heads) {
    return {problem.m * problem.ranks, problem.k / problem.ranks};
  }
  return operand_shape(problem, Operand::a, problem.capacity > 0 ? problem.m : a_rows(problem, rank));
}

Shape b_shape(const Problem& problem, int /*rank*/) { return operand_shape(problem, Operand::b, problem.n); }

Shape gemm_shape(const Problem& problem, int rank) {
  const bool received = problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::rows;
  return {received ? received_rows(problem, rank) : a_rows(problem, rank), problem.n};
}

Shape out_shape(const Problem& problem, int rank) {
  switch (problem.operation) {
    case Operation::gemm_reduce_scatter: return {problem.m / problem.ranks, problem.n};
    case Operation::gemm_all_to_all:
      if (problem.exchange == Exchange::rows) return {received_rows(problem, rank), problem.n};
      return {problem.m * problem.ranks, problem.n / problem.ranks};
    case Operation::gemm_all_reduce:
    case Operation::all_gather_gemm:
    case Operation::all_to_all_gemm: return gemm_shape(problem, rank);
  }
  return {};
}

}  // namespace flashoverlap
