#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "cuda/copy_rows.hpp"
#include "cuda/graph.hpp"
#include "epilogue.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/result_reader.hpp"
#include "flashoverlap/tuner.hpp"
#include "measure/gpu_world.hpp"
#include "names.hpp"
#include "plan/gathered_rows.hpp"
#include "plan/route_room.hpp"
#include "results.hpp"
#include "shared_workspace.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

CommunicatorOptions options_of(double wait_limit_seconds, bool concurrent_collectives) {
  return {.wait_limit = std::chrono::milliseconds(std::llround(wait_limit_seconds * 1e3)),
          .concurrent_collectives = concurrent_collectives};
}

/// What is destroyed without Python's lock: that may wait for other ranks, which may be threads of this
/// process.
template <typename T>
class Unlocked {
 public:
  template <typename... Arguments>
  explicit Unlocked(std::in_place_t, Arguments&&... arguments)
      : value_(std::in_place, std::forward<Arguments>(arguments)...) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    std::optional<nb::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    value_.reset();
  }

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
};

using GpuCommunicator = Unlocked<Communicator>;

/// Every call of the library requires that the communicator's GPU is current.
void make_current(const Communicator& communicator) {
  int current = -1;
  FLASHOVERLAP_CUDA(cudaGetDevice(&current));
  if (current != communicator.device()) FLASHOVERLAP_CUDA(cudaSetDevice(communicator.device()));
}

class GpuOperator {
 public:
  GpuOperator(const Problem& problem, const Schedule& schedule, const GpuCommunicator& communicator,
              Unlocked<SharedWorkspace>& workspace, std::tuple<std::int64_t, std::int64_t> pitches,
              bool b_is_constant, bool is_read_later)
      : communicator_(std::in_place, *communicator),
        operator_(std::in_place, make(problem, schedule, *communicator, *workspace, pitches, b_is_constant)),
        side_(workspace->side_stream()),
        is_read_later_(is_read_later) {
    const Problem& own = operator_->plan().problem;
    a_ = {a_shape(own, communicator->rank()), own.a_layout, std::get<0>(pitches)};
    b_ = {b_shape(own, communicator->rank()), own.b_layout, std::get<1>(pitches)};
    out_ = result_shape(operator_->plan());
    if (stays()) out_.rows = 0;
  }

  std::tuple<std::int64_t, std::int64_t> shape() const { return {out_.rows, out_.cols}; }

  void run(const Named<"a">& a, const Named<"b">& b, const Named<"out">& out) {
    require_all(a, b, out);
    enqueue(a, b, out);
  }

  /// Enqueued on the stream of `result`.
  void natural(const Named<"result">& result, const Named<"out">& out) {
    require_dense(result, out_, "result");
    require_dense(out, whole(), "out");
    const nb::gil_scoped_release released;
    make_current(*communicator_);
    reader().natural(memory_of(result), out.data, static_cast<Stream>(result.stream));
  }

  /// Enqueued on the stream of `result`.
  void rms_norm(const Named<"result">& result, const Named<"weight">& weight, float epsilon,
                const std::optional<Named<"residual">>& residual, const Named<"normalized">& normalized,
                const Named<"sum">& sum) {
    require_dense(result, out_, "result");
    require_dense(weight, {1, whole().cols}, "weight");
    if (residual) require_dense(*residual, whole(), "residual");
    require_dense(normalized, whole(), "normalized");
    require_dense(sum, whole(), "sum");
    const nb::gil_scoped_release released;
    make_current(*communicator_);
    reader().rms_norm(memory_of(result),
                      {.weight = weight.data,
                       .eps = epsilon,
                       .residual = residual ? residual->data : nullptr,
                       .residual_out = sum.data},
                      normalized.data, static_cast<Stream>(result.stream));
  }

  /// Collective: waits for all ranks, and for the runs enqueued so far.
  void route(const std::vector<std::int32_t>& expert_rows) {
    make_current(*communicator_);
    operator_->route(expert_rows);
    gathered_rows_.clear();
  }

  void route_all(const std::vector<std::vector<std::int32_t>>& expert_rows) {
    make_current(*communicator_);
    operator_->route_all(expert_rows);
    gathered_rows_.clear();
  }

  /// Whether `run_and_gather` can return the operator's memory.
  bool gathers_in_place() const { return exchanges_heads() || are_in_place(gathered_rows()); }

  /// As `run`. Also returns the operand that is gathered or exchanged, with the rank's own rows; nothing
  /// where that is `a`: of one rank. `gathered`: where it goes instead, if it is not in place or shall stay.
  std::optional<nb::ndarray<>> run_and_gather(const Named<"a">& a, const Named<"b">& b,
                                              const Named<"out">& out,
                                              const std::optional<Named<"gathered">>& gathered) {
    const Problem& problem = operator_->plan().problem;
    const std::int64_t parts = exchanges_heads() ? problem.ranks : 1;
    const bool routed = problem.operation == Operation::all_to_all_gemm && !exchanges_heads();
    const Shape shape{routed ? gemm_shape(problem, communicator_->rank()).rows : problem.m * parts,
                      problem.k / parts};
    require_all(a, b, out);
    if (gathered) require_dense(*gathered, shape, "gathered");
    void* const own = const_cast<void*>(operator_->gathered());
    const bool is_a = own == nullptr && !gathered;
    if (exchanges_heads() || is_a) {  // by heads a run copies its own rows, one below the other
      enqueue(a, b, out);
    } else {
      run_and_copy(a, b, out, gathered ? gathered->data : own);
    }
    if (own == nullptr || gathered) return std::nullopt;
    using nb::dlpack::dtype_code;
    const auto code = problem.data_type == DataType::bf16 ? dtype_code::Bfloat : dtype_code::Float;
    const std::size_t extents[2]{static_cast<std::size_t>(shape.rows), static_cast<std::size_t>(shape.cols)};
    const nb::dlpack::dtype type{static_cast<std::uint8_t>(code),
                                 static_cast<std::uint8_t>(8 * size_of(problem.data_type)), 1};
    return nb::ndarray<>(own, 2, extents, nb::find(this), nullptr, type, nb::device::cuda::value,
                         communicator_->device());
  }

  void wait() const {
    make_current(*communicator_);
    operator_->wait();
  }

  /// Whether a CUDA graph may have a run.
  bool is_captured() const { return is_captured_; }
  Schedule schedule() const { return operator_->plan().schedule; }
  Problem problem() const { return operator_->plan().problem; }

 private:
  bool exchanges_heads() const {
    const Problem& problem = operator_->plan().problem;
    return problem.operation == Operation::all_to_all_gemm && problem.exchange == Exchange::heads;
  }

  /// Of a plan that gathers or exchanges by rows.
  const std::vector<GatheredRows>& gathered_rows() const {
    if (gathered_rows_.empty()) gathered_rows_ = flashoverlap::gathered_rows(operator_->plan());
    return gathered_rows_;
  }

  /// Rows that tiles read in a are copied to `gathered` concurrently with the run, the others after it where
  /// they are not there already. The copies are enqueued after the run: a copy that begins first takes
  /// multiprocessors, and the GEMM begins when it ends; one that begins later has those that the last wave of
  /// tiles leaves.
  void run_and_copy(const Tensor& a, const Tensor& b, const Tensor& out, void* gathered) {
    const auto stream = static_cast<cudaStream_t>(a.stream);
    const auto copy = [&](BufferRole from, cudaStream_t on) {
      const auto element = static_cast<std::int64_t>(size_of(a.data_type));
      const std::int64_t row_bytes = a.cols * element;
      const bool is_a = from == BufferRole::a;
      const std::int64_t pitch = is_a && a.rows > 1 ? a.row_stride * element : row_bytes;
      const auto* const source = static_cast<const std::byte*>(is_a ? a.data : operator_->gathered());
      for (const GatheredRows& each : gathered_rows()) {
        if (each.buffer != from) continue;
        copy_rows(static_cast<std::byte*>(gathered) + each.row * row_bytes,
                  static_cast<std::size_t>(row_bytes), source + each.buffer_row * pitch,
                  static_cast<std::size_t>(pitch), static_cast<std::size_t>(row_bytes),
                  static_cast<std::size_t>(each.rows), on);
      }
    };
    make_current(*communicator_);
    FLASHOVERLAP_CUDA(cudaEventRecord(side_->begun, stream));
    enqueue(a, b, out);
    FLASHOVERLAP_CUDA(cudaStreamWaitEvent(side_->stream, side_->begun));
    try {
      copy(BufferRole::a, side_->stream);
      if (gathered != operator_->gathered()) copy(BufferRole::gathered, stream);
    } catch (...) {  // before the caller frees what is copied
      cudaEventRecord(side_->ended, side_->stream);
      cudaStreamWaitEvent(stream, side_->ended);
      throw;
    }
    FLASHOVERLAP_CUDA(cudaEventRecord(side_->ended, side_->stream));
    FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, side_->ended));
  }

  void require_all(const Tensor& a, const Tensor& b, const Tensor& out) const {
    require_operand(a, a_, "a");
    require_operand(b, b_, "b");
    require_dense(out, out_, "out");
  }

  void enqueue(const Tensor& a, const Tensor& b, const Tensor& out) {
    const nb::gil_scoped_release released;
    make_current(*communicator_);
    is_captured_ = is_captured_ || flashoverlap::is_captured(static_cast<cudaStream_t>(a.stream));
    operator_->run(a.data, b.data, memory_of(out), static_cast<Stream>(a.stream));
  }

  struct OperandMemory {
    Shape shape{};  ///< in memory
    OperandLayout layout = OperandLayout::k_contiguous;
    std::int64_t pitch = 0;
  };

  static Operator make(const Problem& problem, const Schedule& schedule, const Communicator& communicator,
                       SharedWorkspace& workspace, const std::tuple<std::int64_t, std::int64_t>& pitches,
                       bool b_is_constant) {
    make_current(communicator);
    const std::vector<Plan> plans = make_plans(problem, schedule);
    OperatorOptions options;
    options.b_is_constant = b_is_constant;
    const auto padded = [](std::int64_t pitch, const Shape& shape) {
      return pitch == shape.cols ? 0 : pitch;
    };
    options.pitches = {.a = padded(std::get<0>(pitches), a_shape(problem, communicator.rank())),
                       .b = padded(std::get<1>(pitches), b_shape(problem, communicator.rank()))};
    options.workspace = workspace.holding(plans, communicator);
    return {plans, communicator, options};
  }

  /// Of the result in natural order.
  Shape whole() const {
    const Output& output = operator_->plan().output;
    return {output.rows, output.cols};
  }

  /// Whether the result stays with the operator, for `natural` and `rms_norm` to read. Any other result is
  /// the caller's.
  bool stays() const {
    const bool partial = operator_->plan().schedule.layout == Layout::partial;
    return operator_->result() != nullptr && (is_read_later_ || partial);
  }

  /// Of what a run returns, which is empty where the result stays with the operator.
  void* memory_of(const Tensor& result) const { return stays() ? operator_->result() : result.data; }

  const ResultReader& reader() {
    if (!reader_) reader_.emplace(std::in_place, operator_->plan());
    return **reader_;
  }

  void require_here(const Tensor& tensor, std::string_view name) const {
    require(tensor.on_gpu && tensor.device == communicator_->device(), name,
            tensor.on_gpu ? fmt::format("a matrix on GPU {}", tensor.device) : "a matrix in host memory",
            fmt::format("must be on GPU {}, the communicator's", communicator_->device()));
  }

  void require_dense(const Tensor& tensor, const Shape& shape, std::string_view name) const {
    require_here(tensor, name);
    require_result(tensor, shape, operator_->plan().problem.data_type, name);
    require(tensor.row_stride == shape.cols || shape.rows <= 1, fmt::format("pitch of {}", name),
            tensor.row_stride, "must be the length of a row");
  }

  void require_operand(const Tensor& tensor, const OperandMemory& expected, std::string_view name) const {
    const Problem& problem = operator_->plan().problem;
    require_here(tensor, name);
    python::require_operand(
        tensor, expected.shape, expected.layout,
        &expected == &a_ ? least_rows_of_a(problem, communicator_->rank()) : expected.shape.rows,
        problem.data_type, name);
    const auto [layout, pitch] = layout_of(tensor, name, expected.layout);
    const std::int64_t expected_pitch = expected.pitch == 0 ? expected.shape.cols : expected.pitch;
    require(layout == expected.layout && (pitch == expected_pitch || expected.shape.rows <= 1),
            fmt::format("strides of {}", name), fmt::format("({}, {})", tensor.row_stride, tensor.col_stride),
            fmt::format("must be those that the operator was made for: {}, pitch {}",
                        flashoverlap::name(expected.layout), expected_pitch));
  }

  const GpuCommunicator communicator_;
  Unlocked<Operator> operator_;
  std::shared_ptr<SideStream> side_;
  const bool is_read_later_;
  bool is_captured_ = false;
  std::optional<Unlocked<ResultReader>> reader_;
  mutable std::vector<GatheredRows> gathered_rows_;  // once they are asked for
  OperandMemory a_;
  OperandMemory b_;
  Shape out_;
};

/// The tuner of a communicator's operators.
class GpuTuner {
 public:
  explicit GpuTuner(const GpuCommunicator& communicator)
      : communicator_(std::in_place, *communicator), tuner_(std::in_place, make(*communicator)) {}

  Schedule schedule(const Problem& problem, Reader reader) {
    make_current(*communicator_);
    return tuner_->schedule(problem, reader);
  }

  const Machine& machine() const { return tuner_->machine(); }

  const Machine& measure_machine() {
    make_current(*communicator_);
    return tuner_->measure_machine();
  }

 private:
  static Tuner make(const Communicator& communicator) {
    make_current(communicator);
    return Tuner(communicator);
  }

  const GpuCommunicator communicator_;
  Unlocked<Tuner> tuner_;
};

void bind_communicator(nb::module_& module) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<GpuCommunicator>(module, "Communicator", "One rank of a group of ranks on GPUs.")
      .def(
          "__init__",
          [](GpuCommunicator* self, const nb::bytes& key, int rank, int ranks, double wait_limit,
             bool concurrent_collectives) {
            const std::string text(static_cast<const char*>(key.data()), key.size());
            const nb::gil_scoped_release released;
            new (self) GpuCommunicator(std::in_place, text, rank, ranks,
                                       options_of(wait_limit, concurrent_collectives));
          },
          "key"_a, "rank"_a, "ranks"_a, "wait_limit"_a, "concurrent_collectives"_a)
      .def_static(
          "from_environment",
          [](double wait_limit, bool concurrent_collectives) {
            const CommunicatorOptions options = options_of(wait_limit, concurrent_collectives);
            return std::make_unique<GpuCommunicator>(std::in_place, Communicator::from_environment(options));
          },
          "wait_limit"_a, "concurrent_collectives"_a, Released())
      .def_static("make_key",
                  [] {
                    const std::string key = Communicator::make_key();
                    return nb::bytes(key.data(), key.size());
                  })
      .def(
          "split",
          [](const GpuCommunicator& self, int color) {
            make_current(*self);
            return std::make_unique<GpuCommunicator>(std::in_place, self->split(color));
          },
          "color"_a, Released())
      .def(
          "meet",
          [](const GpuCommunicator& self) {
            make_current(*self);
            GpuRank(*self).barrier();
          },
          Released())
      .def(
          "abort", [](const GpuCommunicator& self, const std::string& reason) { self->abort(reason); },
          "reason"_a, Released())
      .def_prop_ro("rank", [](const GpuCommunicator& self) { return self->rank(); })
      .def_prop_ro("ranks", [](const GpuCommunicator& self) { return self->ranks(); })
      .def_prop_ro("device", [](const GpuCommunicator& self) { return self->device(); })
      .def_prop_ro("concurrent_collectives",
                   [](const GpuCommunicator& self) { return self->options().concurrent_collectives; });
}

}  // namespace
}  // namespace flashoverlap::python

NB_MODULE(_gpu, module) {
  using namespace flashoverlap;
  using namespace flashoverlap::python;
  using Released = nb::call_guard<nb::gil_scoped_release>;
  module.doc() = "What needs GPUs, CUDA and NCCL.";
  nb::module_::import_("flashoverlap._core");  // its types and errors
  bind_communicator(module);
  bind_epilogue(module);
  nb::class_<Unlocked<SharedWorkspace>>(module, "SharedWorkspace")
      .def("__init__",
           [](Unlocked<SharedWorkspace>* self) { new (self) Unlocked<SharedWorkspace>(std::in_place); });
  nb::class_<GpuOperator>(module, "GpuOperator")
      .def(nb::init<const Problem&, const Schedule&, const GpuCommunicator&, Unlocked<SharedWorkspace>&,
                    std::tuple<std::int64_t, std::int64_t>, bool, bool>(),
           "problem"_a, "schedule"_a, "communicator"_a, "workspace"_a, "pitches"_a, "b_is_constant"_a,
           "is_read_later"_a, Released())
      .def("run", &GpuOperator::run, "a"_a.none(), "b"_a.none(), "out"_a.none())
      .def("route", &GpuOperator::route, "expert_rows"_a, Released())
      .def("route_all", &GpuOperator::route_all, "expert_rows"_a, Released())
      .def("run_and_gather", &GpuOperator::run_and_gather, "a"_a.none(), "b"_a.none(), "out"_a.none(),
           "gathered"_a.none())
      .def_prop_ro("gathers_in_place", &GpuOperator::gathers_in_place)
      .def("natural", &GpuOperator::natural, "result"_a, "out"_a)
      .def("rms_norm", &GpuOperator::rms_norm, "result"_a, "weight"_a, "epsilon"_a, "residual"_a.none(),
           "normalized"_a, "sum"_a)
      .def("wait", &GpuOperator::wait, Released())
      .def_prop_ro("is_captured", &GpuOperator::is_captured)
      .def_prop_ro("shape", &GpuOperator::shape)
      .def_prop_ro("schedule", &GpuOperator::schedule)
      .def_prop_ro("problem", &GpuOperator::problem);
  nb::class_<GpuTuner>(module, "GpuTuner")
      .def(nb::init<const GpuCommunicator&>(), "communicator"_a, Released())
      .def("schedule", &GpuTuner::schedule, "problem"_a, "reader"_a, Released())
      .def_prop_ro("machine", &GpuTuner::machine, nb::rv_policy::copy)
      .def("measure_machine", &GpuTuner::measure_machine, Released());
}
