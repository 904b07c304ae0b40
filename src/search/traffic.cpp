#include "search/traffic.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "plan/at.hpp"

namespace flashoverlap {
namespace {

/// The matrix that is reduced, gathered or exchanged.
Shape moved_shape(const Problem& problem) {
  if (gathers(problem, Operand::b)) return {problem.n, problem.k};
  return {problem.m, communicates_first(problem.operation) ? problem.k : problem.n};
}

}  // namespace

MessageKind collective_of(Operation operation) {
  switch (operation) {
    case Operation::gemm_all_reduce: return MessageKind::all_reduce;
    case Operation::gemm_reduce_scatter: return MessageKind::reduce_scatter;
    case Operation::all_gather_gemm: return MessageKind::all_gather;
    case Operation::gemm_all_to_all:
    case Operation::all_to_all_gemm: break;
  }
  return MessageKind::exchange;
}

int rank_with_most_rows(const Problem& problem) {
  if (!is_all_to_all(problem.operation) || problem.exchange != Exchange::rows) return 0;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.ranks), 0);
  if (communicates_first(problem.operation)) {
    for (const std::vector<std::int64_t>& sent : count_rows_between(problem))
      std::ranges::transform(rows, sent, rows.begin(), std::plus());
  } else {
    for (int rank = 0; rank < problem.ranks; ++rank) at(rows, rank) = a_rows(problem, rank);
  }
  return static_cast<int>(std::ranges::max_element(rows) - rows.begin());
}

double most_sent_bytes(const Problem& problem) {
  const Shape moved = moved_shape(problem);
  const double row_bytes = static_cast<double>(moved.cols * size_of(problem.data_type));
  if (is_all_to_all(problem.operation) && problem.exchange == Exchange::rows) {
    std::int64_t most_rows = 0;
    for (int rank = 0; rank < problem.ranks; ++rank)
      most_rows = std::max(most_rows, a_rows(problem, rank) - rows_between(problem, rank, rank));
    return static_cast<double>(most_rows) * row_bytes;
  }
  const double times = problem.operation == Operation::gemm_all_reduce ? 2 : 1;  // partial results, then sums
  return times * static_cast<double>(moved.rows) * row_bytes * (problem.ranks - 1) / problem.ranks;
}

double matrix_bytes(MessageKind kind, int ranks, double sent_bytes) {
  return sent_bytes * ranks / (ranks - 1) / (kind == MessageKind::all_reduce ? 2 : 1);
}

}  // namespace flashoverlap
