/// What is to be computed: one GEMM per rank, and the communication before or after it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

/// Every rank r computes C_r[m,n] = A_r[m,k] · B_r[n,k]ᵀ. C is row-major; A and B as their `OperandLayout`
/// says.
enum class Operation {
  gemm_all_reduce,      ///< out[m,n] = Σ_r C_r, on every rank
  gemm_reduce_scatter,  ///< out[m/ranks,n] = the rank's rows of Σ_r C_r
  gemm_all_to_all,      ///< parts of C_r are sent to other ranks, see `Exchange`
  all_gather_gemm,      ///< A (or B) is sharded and gathered before the GEMM, see `Operand`
  all_to_all_gemm,      ///< parts of A are sent to other ranks before the GEMM, see `Exchange`
};

/// How an operand lies in memory: as a row-major matrix [rows,k], in which k is contiguous, or as [k,rows],
/// in which the operand's rows are. A layer Y = X·Wᵀ with X[m,k] and W[n,k] needs all of them:
///   forward: A = X and B = W, both `k_contiguous`;
///   gradient of the input, dX = dY·W: A = dY is `k_contiguous`, B = W is `row_contiguous`;
///   gradient of the weights, dW = dYᵀ·X: A = dY and B = X, both `row_contiguous`.
enum class OperandLayout : std::uint8_t { k_contiguous, row_contiguous };

/// The operand that `all_gather_gemm` gathers: A (sequence parallelism) or B (sharded weights). Each rank
/// holds the same number of rows of the operand's matrix in memory: rows of the operand where it is
/// `k_contiguous`, and where it is `row_contiguous` a part of k.
enum class Operand { a, b };

/// How an all-to-all divides its matrix among the ranks.
///
/// `rows`: each row has its own destination (tokens of experts).
///   gemm_all_to_all: row i of C_r goes to rank destination(r, i). out[received,n] holds the rows of rank 0
///   first, then those of rank 1, ...; the rows of one rank keep their order.
///   all_to_all_gemm: the same for the rows of A_r[m,k], which must be sorted by destination. The GEMM
///   computes the rows that were received: out[received,n].
/// `heads`: equal column blocks (Ulysses: from heads to sequence and back).
///   gemm_all_to_all: columns [d·n/ranks, (d+1)·n/ranks) of C_r go to rank d, which holds them as rows
///   [r·m, (r+1)·m) of out[ranks·m, n/ranks].
///   all_to_all_gemm: rank r holds A_r[ranks·m, k/ranks]. Its rows [d·m, (d+1)·m) go to rank d, whose GEMM
///   takes them as columns [r·k/ranks, (r+1)·k/ranks) of its operand [m,k]; out[m,n].
enum class Exchange { rows, heads };

/// Shapes are the same on all ranks, but for the rows of all-to-alls. `validate` states what must divide by
/// the number of ranks.
struct Problem {
  Operation operation = Operation::gemm_all_reduce;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int ranks = 1;  ///< 1 to `max_ranks`
  DataType data_type = DataType::bf16;
  Operand gathered = Operand::a;                         ///< all_gather_gemm only
  Exchange exchange = Exchange::rows;                    ///< gemm_all_to_all and all_to_all_gemm only
  OperandLayout a_layout = OperandLayout::k_contiguous;  ///< always `k_contiguous` for all_to_all_gemm
  OperandLayout b_layout = OperandLayout::k_contiguous;
  /// destinations[r][i] is the rank that row i of rank r goes to; `Exchange::rows` only. Empty: every rank
  /// sends equal parts, row i goes to rank i / (m / ranks).
  std::vector<std::vector<std::int32_t>> destinations{};
  /// Experts on each rank. B holds their weights one after the other: [experts·n, k] in memory, or where it
  /// is `row_contiguous` [experts·k, n]. Those of expert e begin at its row e·n, or e·k: at element
  /// e·n·pitch, or e·k·pitch. So the weights of one GEMM, as they lie, are those of its input's gradient,
  /// whose n and k are exchanged, in the other layout. More than 1 with `expert_rows` only.
  int experts = 1;
  /// Rows of A that are sorted by expert; empty: none are.
  /// All-to-all by rows, instead of destinations: expert_rows[r][t · experts + e] rows of rank r go to rank
  /// t, in this order. all_to_all_gemm multiplies them there with expert e of rank t, gemm_all_to_all here,
  /// with expert e of rank r, so that `returning` sends back what another all-to-all has brought. Rank r's A
  /// has as many rows as its list adds up to, at most m. all_gather_gemm of A's rows: expert_rows[r][e] rows
  /// of rank r's part belong to expert e of every rank.
  std::vector<std::vector<std::int32_t>> expert_rows{};
  /// If not 0, needs `expert_rows` of an all-to-all: the most rows that a rank may receive. What is received
  /// then has `capacity` rows, whatever `expert_rows` says, so that other routes fit the same memory: see
  /// `Operator::route`. The caller's A has at least `a_rows` rows, and m are enough for any routes.
  std::int64_t capacity = 0;

  bool operator==(const Problem&) const = default;
};

inline constexpr int max_ranks = 64;
inline constexpr int max_experts = 4096;

/// Rows and columns of a row-major matrix.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(const Shape&) const = default;
};

/// Throws `InvalidArgument` with the field, its value and the rule if the problem is not well-formed.
void validate(const Problem& problem);

/// The functions below expect a problem that passed `validate`.

/// The problem that sends the rows which an all_to_all_gemm with `expert_rows` has brought back to where they
/// came from, after a GEMM of its own: gemm_all_to_all with this n and k, and B in the same layout.
Problem returning(const Problem& problem, std::int64_t n, std::int64_t k);

/// The rows of A that `rank` has: m, or fewer where `expert_rows` of an all-to-all says so.
std::int64_t a_rows(const Problem& problem, int rank);

/// The rank that row `row` of rank `source` goes to (`Exchange::rows`).
std::int32_t destination(const Problem& problem, int source, std::int64_t row);

/// The number of rows that `source` sends to `target` (`Exchange::rows`).
std::int64_t rows_between(const Problem& problem, int source, int target);

/// counts[source][target] = rows_between(source, target), in one pass.
std::vector<std::vector<std::int64_t>> count_rows_between(const Problem& problem);

/// Shapes in memory of the operands that the caller passes on `rank`; of the shard, where an operand is
/// gathered. Rows of the operand are columns where it is `row_contiguous`. With a capacity A has m rows here,
/// the most that it may need.
Shape a_shape(const Problem& problem, int rank);
Shape b_shape(const Problem& problem, int rank);

/// Shape of C on `rank`: m × n, except for all-to-alls by rows: `a_rows`, or for all_to_all_gemm as many as
/// are received.
Shape gemm_shape(const Problem& problem, int rank);

/// Shape of the result on `rank`, as an ordinary matrix (`Layout::natural`).
Shape out_shape(const Problem& problem, int rank);

/// Whether the communication comes before the GEMM: all_gather_gemm and all_to_all_gemm.
bool communicates_first(Operation operation);

/// Whether the problem is an all_gather_gemm that gathers this operand.
bool gathers(const Problem& problem, Operand operand);

/// Whether each rank holds a part of k of the operand that is gathered, as it is `row_contiguous`.
bool gathers_along_k(const Problem& problem);

/// The layout of A or B.
OperandLayout layout_of(const Problem& problem, Operand operand);

/// gemm_all_to_all and all_to_all_gemm.
bool is_all_to_all(Operation operation);

std::string_view name(Operation operation);
std::string_view name(Operand operand);
std::string_view name(OperandLayout layout);
std::string_view name(Exchange exchange);

}  // namespace flashoverlap
