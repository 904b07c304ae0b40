#include "search/traffic.hpp"

#include <algorithm>
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
  const std::vector<std::vector<std::int64_t>> counts = count_rows_between(problem);
  const auto rows = [&](int rank) {
    if (!communicates_first(problem.operation)) return a_rows(problem, rank);
    std::int64_t received = 0;
    for (const std::vector<std::int64_t>& of_source : counts) received += at(of_source, rank);
    return received;
  };
  int most = 0;
  for (int rank = 1; rank < problem.ranks; ++rank) {
    if (rows(rank) > rows(most)) most = rank;
  }
  return most;
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
