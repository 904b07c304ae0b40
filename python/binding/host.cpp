#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <span>

#include "core.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/route_room.hpp"
#include "results.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

using Arrays = nb::typed<nb::sequence, nb::object>;

/// All ranks of a problem on the host, which computes with real threads and counters.
class HostWorld {
 public:
  HostWorld(const Plans& plans, double wait_limit_seconds)
      : plans_(plans.of_ranks),
        executor_(plans_, {.wait_limit = std::chrono::milliseconds(std::llround(wait_limit_seconds * 1e3))}) {
  }

  /// One matrix for each rank.
  void run(const Arrays& a, const Arrays& b, const Arrays& out) {
    std::vector<Tensor> outs;
    std::vector<Matrix> as;
    std::vector<Matrix> bs;
    for (const Plan& plan : plans_) {
      const int rank = plan.rank;
      named_by_rank(rank, [&] {
        const Problem& problem = plan.problem;
        as.push_back(operand(nb::object(a[rank]), a_shape(problem, rank), problem.a_layout,
                             least_rows_of_a(problem, rank), problem.data_type, "a"));
        const Shape of_b = b_shape(problem, rank);
        bs.push_back(operand(nb::object(b[rank]), of_b, problem.b_layout, of_b.rows, problem.data_type, "b"));
        const Tensor& own = outs.emplace_back(tensor_of(nb::object(out[rank]), "out"));
        require(!own.on_gpu, "out", "a matrix on a GPU", "must be in host memory for ranks on the host");
        require_result(own, result_shape(plan), problem.data_type);
      });
    }
    const nb::gil_scoped_release released;
    const std::vector<Matrix> results = executor_.run(as, bs);
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      const Plan& plan = plans_[rank];
      const bool is_natural = plan.schedule.layout == Layout::natural;
      copy(is_natural ? natural_result(plan.output, results[rank]) : results[rank], outs[rank]);
    }
  }

  /// `Problem::expert_rows` of the runs that follow.
  void route(const std::vector<std::vector<std::int32_t>>& expert_rows) {
    executor_.route(expert_rows);
    for (Plan& each : plans_) flashoverlap::route(each, expert_rows);
  }

  const Problem& problem() const { return plans_.front().problem; }

  std::tuple<std::int64_t, std::int64_t> shape(int rank) const {
    const auto [rows, cols] = result_shape(plan(rank));
    return {rows, cols};
  }

  void natural(int rank, const Named<"result">& result, const Named<"out">& out) const {
    const Output& output = plan(rank).output;
    const Matrix natural = read(rank, result);
    require_result(out, {output.rows, output.cols}, natural.data_type());
    copy(natural, out);
  }

  /// As `ResultReader::rms_norm`, which does it on GPUs.
  void rms_norm(int rank, const Named<"result">& result, const Named<"weight">& weight, float epsilon,
                const std::optional<Named<"residual">>& residual, const Named<"normalized">& normalized,
                const Named<"sum">& sum) const {
    const Output& output = plan(rank).output;
    const DataType type = plan(rank).problem.data_type;
    const Shape whole{output.rows, output.cols};
    const Matrix natural = read(rank, result);
    require_row_major(weight, {1, whole.cols}, type, "weight");
    if (residual) require_row_major(*residual, whole, type, "residual");
    require_result(normalized, whole, type, "normalized");
    require_result(sum, whole, type, "sum");
    require(epsilon >= 0, "epsilon", epsilon, "must not be negative");
    const auto host_matrix = [&](const Tensor& tensor, std::string_view name) {
      return copy_to_host_matrix(tensor, type, OperandLayout::k_contiguous, name);
    };
    std::vector<float> weights(static_cast<std::size_t>(whole.cols));
    host_matrix(weight, "weight").read(0, 0, weights);
    std::optional<Matrix> added;
    if (residual) added = host_matrix(*residual, "residual");
    Matrix sums(type, whole.rows, whole.cols);
    const nb::gil_scoped_release released;
    copy(flashoverlap::rms_norm({.rows = whole.rows, .cols = whole.cols}, natural, weights, epsilon,
                                added ? &*added : nullptr, &sums),
         normalized);
    copy(sums, sum);
  }

 private:
  const Plan& plan(int rank) const { return plans_.at(static_cast<std::size_t>(rank)); }

  Matrix read(int rank, const Tensor& result) const {
    const DataType type = plan(rank).problem.data_type;
    require_row_major(result, result_shape(plan(rank)), type, "result");
    return natural_result(plan(rank).output,
                          copy_to_host_matrix(result, type, OperandLayout::k_contiguous, "result"));
  }

  /// What is wrong with one rank's arguments is raised on all ranks, so it says whose they are.
  template <typename Function>
  static void named_by_rank(int rank, const Function& function) {
    try {
      function();
    } catch (const InvalidArgument& refusal) {
      throw refusal.renamed(fmt::format("rank {}: {}", rank, refusal.argument()));
    } catch (const nb::builtin_exception& refusal) {
      throw nb::builtin_exception(refusal.type(), fmt::format("rank {}: {}", rank, refusal.what()).c_str());
    }
  }

  static Matrix operand(nb::handle object, const Shape& shape, OperandLayout layout, std::int64_t least_rows,
                        DataType data_type, std::string_view name) {
    const Tensor tensor = tensor_of(object, name);
    require_operand(tensor, shape, layout, least_rows, data_type, name);
    return copy_to_host_matrix(tensor, data_type, layout, name);
  }

  static void copy(const Matrix& matrix, const Tensor& out) {
    for (std::int64_t row = 0; row < matrix.rows(); ++row) {
      std::memcpy(static_cast<std::byte*>(out.data) + row * out.row_stride * size_of(out.data_type),
                  matrix.row(row), static_cast<std::size_t>(matrix.row_bytes()));
    }
  }

  std::vector<Plan> plans_;
  HostExecutor executor_;
};

}  // namespace

void bind_host(nb::module_& module) {
  nb::class_<HostWorld>(module, "HostWorld", "All ranks of a problem on the host.")
      .def(nb::init<const Plans&, double>(), "plans"_a, "wait_limit_seconds"_a)
      .def("run", &HostWorld::run, "a"_a, "b"_a, "out"_a, "Writes the results of all ranks into `out`.")
      .def("route", &HostWorld::route, "expert_rows"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("problem", &HostWorld::problem, nb::rv_policy::copy)
      .def("shape", &HostWorld::shape, "rank"_a, "Of the matrix that a run writes.")
      .def("natural", &HostWorld::natural, "rank"_a, "result"_a, "out"_a)
      .def("rms_norm", &HostWorld::rms_norm, "rank"_a, "result"_a, "weight"_a, "epsilon"_a,
           "residual"_a.none(), "normalized"_a, "sum"_a);
}

}  // namespace flashoverlap::python
