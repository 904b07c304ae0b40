#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "core.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

/// All ranks of a problem on the host, which computes with real threads and counters.
class HostWorld {
 public:
  HostWorld(const Plans& plans, double wait_limit_seconds)
      : plans_(plans.of_ranks),
        executor_(plans_, {.wait_limit = std::chrono::milliseconds(std::llround(wait_limit_seconds * 1e3))}) {
  }

  void run(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::vector<Tensor>& out) {
    const DataType data_type = plans_.front().problem.data_type;
    std::vector<Matrix> as;
    std::vector<Matrix> bs;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      require(!out.at(rank).on_gpu, "out", "a matrix on a GPU",
              "must be in host memory for ranks on the host");
      require_result(out[rank], out_shape(plans_[rank].problem, static_cast<int>(rank)), data_type);
      as.push_back(copy_to_host_matrix(a.at(rank), data_type, "a"));
      bs.push_back(copy_to_host_matrix(b.at(rank), data_type, "b"));
    }
    const nb::gil_scoped_release released;
    const std::vector<Matrix> results = executor_.run(as, bs);
    for (std::size_t rank = 0; rank < plans_.size(); ++rank)
      copy(natural_result(plans_[rank].output, results[rank]), out[rank]);
  }

 private:
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
      .def("run", &HostWorld::run, "a"_a, "b"_a, "out"_a, "Writes the results of all ranks into `out`.");
}

}  // namespace flashoverlap::python
