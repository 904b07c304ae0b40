/// What is to be computed: one GEMM per rank and the communication before or after it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

/// Every rank r runs C_r[m,n] = A_r[m,k] · B_r[n,k]ᵀ (row-major operands, k contiguous).
enum class Operation {
  gemm_all_reduce,      ///< out[m,n] = Σ_r C_r, on every rank
  gemm_reduce_scatter,  ///< out[m/ranks,n] = the rank's rows of Σ_r C_r
  gemm_all_to_all,      ///< parts of C_r go to the ranks they are meant for, see `Exchange`
  all_gather_gemm,      ///< A (or B) is sharded by rows and gathered before the GEMM, see `Problem::gathered`
  all_to_all_gemm,      ///< parts of A go to the ranks they are meant for before the GEMM, see `Exchange`
};

/// Which operand `all_gather_gemm` gathers: A (sequence parallelism) or B (sharded weights).
enum class Operand { a, b };

/// How an all-to-all cuts its matrix.
///
/// `rows`: each row has a destination of its own (expert tokens).
///   gemm_all_to_all: row i of C_r goes to rank destination(r,i); out[received,n] holds rank 0's rows first,
///   each rank's in ascending i. all_to_all_gemm: the same with the rows of A_r[m,k], which must be sorted by
///   destination; the GEMM then runs over the received rows, out[received,n].
/// `heads`: equal column blocks (Ulysses, head <-> sequence).
///   gemm_all_to_all: columns [d·n/ranks, (d+1)·n/ranks) of C_r go to rank d, as rows [r·m, (r+1)·m) of
///   out[ranks·m, n/ranks]. all_to_all_gemm: rank r holds A_r[ranks·m, k/ranks]; rows [d·m, (d+1)·m) of it
///   are columns [r·k/ranks, (r+1)·k/ranks) of the operand [m,k] of rank d's GEMM; out[m,n].
enum class Exchange { rows, heads };

struct Problem {
  Operation operation = Operation::gemm_all_reduce;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int ranks = 1;
  DataType data_type = DataType::bf16;
  Operand gathered = Operand::a;
  Exchange exchange = Exchange::rows;
  /// destinations[r][i] is the rank that row i of rank r goes to (`Exchange::rows`). Empty: equal parts in
  /// order, row i goes to rank i / (m / ranks).
  std::vector<std::vector<std::int32_t>> destinations;

  bool operator==(const Problem&) const = default;
};

inline constexpr int max_ranks = 64;

/// Rows and columns of a row-major matrix.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(const Shape&) const = default;
};

/// Throws `InvalidArgument` naming the field, its value and the rule when the problem cannot be posed.
void validate(const Problem& problem);

/// The functions below expect a problem that passed `validate`.

/// The rank that row `row` of rank `source` goes to (`Exchange::rows`).
std::int32_t destination(const Problem& problem, int source, std::int64_t row);

/// Rows that `source` sends to `target` (`Exchange::rows`).
std::int64_t rows_between(const Problem& problem, int source, int target);

/// counts[source][target] = rows_between(source, target), in one pass.
std::vector<std::vector<std::int64_t>> count_rows_between(const Problem& problem);

/// Shape of what the caller passes as A and B on `rank` (the shard where the operand is gathered).
Shape a_shape(const Problem& problem, int rank);
Shape b_shape(const Problem& problem, int rank);

/// Shape of C on `rank`: m × n, except that all_to_all_gemm by rows computes as many rows as the rank
/// receives.
Shape gemm_shape(const Problem& problem, int rank);

/// Shape of the result on `rank`, in natural layout.
Shape out_shape(const Problem& problem, int rank);

/// Whether the GEMM computes with what was communicated, instead of communicating what it computed.
bool communicates_first(Operation operation);

/// Whether this is the operand that is gathered before the GEMM.
bool gathers(const Problem& problem, Operand operand);

/// Whether every rank has something of its own for every other: `Problem::exchange` says what.
bool is_all_to_all(Operation operation);

std::string_view name(Operation operation);
std::string_view name(Operand operand);
std::string_view name(Exchange exchange);

}  // namespace flashoverlap
