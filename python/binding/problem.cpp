#include "flashoverlap/problem.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>

#include "arguments.hpp"
#include "core.hpp"
#include "hash.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

std::string representation(const Problem& p) {
  std::string extra;
  if (p.operation == Operation::all_gather_gemm) extra += fmt::format(", gathered=\"{}\"", name(p.gathered));
  if (is_all_to_all(p.operation)) extra += fmt::format(", exchange=\"{}\"", name(p.exchange));
  for (const auto& [key, layout] : {std::pair("a_layout", p.a_layout), {"b_layout", p.b_layout}}) {
    if (layout != OperandLayout::k_contiguous) extra += fmt::format(", {}=\"{}\"", key, name(layout));
  }
  if (p.experts > 1) extra += fmt::format(", experts={}", p.experts);
  if (p.capacity > 0) extra += fmt::format(", capacity={}", p.capacity);
  return fmt::format("Problem(\"{}\", m={}, n={}, k={}, ranks={}, data_type=\"{}\"{})", name(p.operation),
                     p.m, p.n, p.k, p.ranks, name(p.data_type), extra);
}

std::tuple<std::int64_t, std::int64_t> pair_of(const Shape& shape) { return {shape.rows, shape.cols}; }

/// The shape that a caller sees: that of the operand, however it lies in memory.
std::tuple<std::int64_t, std::int64_t> operand_shape(const Shape& stored, OperandLayout layout) {
  const auto [rows, cols] = stored;
  return layout == OperandLayout::k_contiguous ? std::tuple(rows, cols) : std::tuple(cols, rows);
}

void require_rank(const Problem& problem, int rank) {
  require(rank >= 0 && rank < problem.ranks, "rank", rank, fmt::format("must be 0 to {}", problem.ranks - 1));
}

/// What decides which problem two matrices belong to, and how they lie in memory, as bytes: equal where one
/// operator serves both.
nb::bytes signature(Operation operation, const Named<"a">& a, const Named<"b">& b, nb::handle exchange,
                    nb::handle gathered) {
  const std::array<std::int64_t, 12> numbers{
      static_cast<std::int64_t>(operation),
      static_cast<std::int64_t>(enumerator<Exchange>(exchange, "exchange")),
      static_cast<std::int64_t>(enumerator<Operand>(gathered, "gathered")),
      static_cast<std::int64_t>(a.data_type),
      a.rows,
      a.cols,
      a.rows <= 1 ? 0 : a.row_stride,
      a.cols <= 1 ? 0 : a.col_stride,
      b.rows,
      b.cols,
      b.rows <= 1 ? 0 : b.row_stride,
      b.cols <= 1 ? 0 : b.col_stride};
  return nb::bytes(numbers.data(), sizeof(numbers));
}

/// The problem that one rank's matrices are part of, and the pitches of a and b. Errors know the matrices
/// under the names that the caller has for them.
std::tuple<Problem, std::int64_t, std::int64_t> problem_of(Operation operation, nb::handle of_a,
                                                           nb::handle of_b, int ranks, Exchange exchange,
                                                           Operand gathered, const std::string& a_name,
                                                           const std::string& b_name) {
  const Tensor a = tensor_of(of_a, a_name);
  const Tensor b = tensor_of(of_b, b_name);
  require(a.data_type == b.data_type, fmt::format("data type of {}", b_name), name(b.data_type),
          fmt::format("must be that of {}, {}", a_name, name(a.data_type)));
  // Each rank holds a part of k of the operand that is gathered, and not of its rows.
  const auto layout_of_part = [&](const Tensor& part, const Tensor& other, Operand operand) {
    return operation == Operation::all_gather_gemm && gathered == operand && ranks > 1 &&
                   part.cols * ranks == other.cols
               ? OperandLayout::row_contiguous
               : OperandLayout::k_contiguous;
  };
  const auto [a_layout, a_pitch] = python::layout_of(a, a_name, layout_of_part(a, b, Operand::a));
  const auto [b_layout, b_pitch] = python::layout_of(b, b_name, layout_of_part(b, a, Operand::b));
  Problem problem{.operation = operation,
                  .m = a.rows,
                  .n = b.rows,
                  .k = a.cols,
                  .ranks = ranks,
                  .data_type = a.data_type,
                  .a_layout = a_layout,
                  .b_layout = b_layout};
  if (operation == Operation::all_gather_gemm) {
    problem.gathered = gathered;
    // Each rank holds a part of the rows, or, where those are contiguous, of k.
    if (gathers_along_k(problem)) {
      problem.k = gathered == Operand::a ? b.cols : a.cols;
    } else {
      (gathered == Operand::a ? problem.m : problem.n) *= ranks;
    }
  }
  if (is_all_to_all(operation)) problem.exchange = exchange;
  if (operation == Operation::all_to_all_gemm && exchange == Exchange::heads) {
    require(a.rows % ranks == 0, fmt::format("rows of {}", a_name), a.rows,
            fmt::format("must be a multiple of the {} ranks", ranks));
    problem.m = a.rows / ranks;
    problem.k = a.cols * ranks;
  }
  validate(problem);
  const auto a_cols = std::get<1>(operand_shape(a_shape(problem, 0), a_layout));
  const auto b_cols = std::get<1>(operand_shape(b_shape(problem, 0), b_layout));
  require(a.cols == a_cols, fmt::format("columns of {}", a_name), a.cols,
          fmt::format("must be {}, as {} has {}", a_cols, b_name, b.cols));
  require(b.cols == b_cols, fmt::format("columns of {}", b_name), b.cols,
          fmt::format("must be {}, as {} has {}", b_cols, a_name, a.cols));
  return {problem, a_pitch, b_pitch};
}

}  // namespace

void bind_problem(nb::module_& module) {
  nb::class_<Problem>(
      module, "Problem",
      "One GEMM per rank, C[m,n] = A[m,k] · B[n,k]ᵀ, and the communication before or after it.\n\n"
      "operation: \"gemm_all_reduce\", \"gemm_reduce_scatter\", \"gemm_all_to_all\",\n"
      "\"all_gather_gemm\" or \"all_to_all_gemm\". m, n and k are those of each rank's GEMM.\n"
      "Raises InvalidArgument for shapes that break a rule.")
      .def(
          "__init__",
          [](Problem* self, const nb::args& by_place, const nb::kwargs& by_name) {
            CallArguments given(by_place, by_name, "Problem(\"gemm_all_reduce\", m=64, n=32, k=16, ranks=2)");
            Problem problem;
            given.require_first("operation", problem.operation);
            given.require_named("m", problem.m);
            given.require_named("n", problem.n);
            given.require_named("k", problem.k);
            given.require_named("ranks", problem.ranks);
            given.take("data_type", problem.data_type);
            given.take("gathered", problem.gathered);
            given.take("exchange", problem.exchange);
            given.take("a_layout", problem.a_layout);
            given.take("b_layout", problem.b_layout);
            given.take("destinations", problem.destinations);
            given.take("experts", problem.experts);
            given.take("expert_rows", problem.expert_rows);
            given.take("capacity", problem.capacity);
            given.require_no_others();
            validate(problem);
            new (self) Problem(std::move(problem));
          },
          nb::sig("def __init__(self, operation: str, *, m: int, n: int, k: int, ranks: int, "
                  "data_type: str = 'bf16', gathered: str = 'a', exchange: str = 'rows', "
                  "a_layout: str = 'k_contiguous', b_layout: str = 'k_contiguous', "
                  "destinations: collections.abc.Sequence[collections.abc.Sequence[int]] = [], "
                  "experts: int = 1, "
                  "expert_rows: collections.abc.Sequence[collections.abc.Sequence[int]] = [], "
                  "capacity: int = 0) -> None"))
      .def_ro("operation", &Problem::operation)
      .def_ro("m", &Problem::m)
      .def_ro("n", &Problem::n)
      .def_ro("k", &Problem::k)
      .def_ro("ranks", &Problem::ranks)
      .def_ro("data_type", &Problem::data_type)
      .def_ro("gathered", &Problem::gathered)
      .def_ro("exchange", &Problem::exchange)
      .def_ro("a_layout", &Problem::a_layout)
      .def_ro("b_layout", &Problem::b_layout)
      .def_ro("experts", &Problem::experts)
      .def_ro("expert_rows", &Problem::expert_rows)
      .def_ro("capacity", &Problem::capacity)
      .def(
          "a_shape",
          [](const Problem& p, int rank) {
            require_rank(p, rank);
            return operand_shape(a_shape(p, rank), p.a_layout);
          },
          "rank"_a = 0, "Shape of a on a rank: [rows, k], transposed in memory where it is row_contiguous.")
      .def(
          "b_shape",
          [](const Problem& p, int rank) {
            require_rank(p, rank);
            return operand_shape(b_shape(p, rank), p.b_layout);
          },
          "rank"_a = 0,
          "Shape of b on a rank: [n, k], transposed in memory where it is row_contiguous. That of several\n"
          "experts is [experts * n, k], or where it is row_contiguous [n, experts * k].")
      .def(
          "out_shape",
          [](const Problem& p, int rank) {
            require_rank(p, rank);
            return pair_of(out_shape(p, rank));
          },
          "rank"_a = 0, "Shape of the result on a rank.")
      .def(
          "rows_between",
          [](const Problem& p, int source, int target) {
            require_rank(p, source);
            require_rank(p, target);
            require(is_all_to_all(p.operation) && p.exchange == Exchange::rows, "exchange", name(p.exchange),
                    "must be rows, of an all-to-all");
            return rows_between(p, source, target);
          },
          "source"_a, "target"_a, "How many rows one rank sends to another in an all-to-all by rows.")
      .def("returning", &returning, nb::kw_only(), "n"_a, "k"_a,
           "Of an all_to_all_gemm with expert_rows: the gemm_all_to_all that sends its rows back to where "
           "they\n"
           "came from.")
      .def(
          "__eq__", [](const Problem& one, const Problem& other) { return one == other; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", &hash<Problem>)
      .def("__repr__", &representation);

  module.def("signature", &signature, "operation"_a, "a"_a.none(), "b"_a.none(), "exchange"_a.none(),
             "gathered"_a.none());
  module.def("problem_of", &problem_of, "operation"_a, "a"_a.none(), "b"_a.none(), "ranks"_a, "exchange"_a,
             "gathered"_a, "a_name"_a = "a", "b_name"_a = "b");
}

}  // namespace flashoverlap::python
