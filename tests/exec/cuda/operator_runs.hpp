/// Operators on GPUs: what their tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/host_comparison.hpp"
#include "support/gpu_ranks.hpp"
#include "support/gpu_threads.hpp"

namespace flashoverlap::testing {

/// Those of this process, which may be one of several.
inline std::vector<int> ranks_here(int ranks) {
  if (ranks > 1 && launched_processes(environment_variable))
    return {read_process_environment(environment_variable).rank};
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// What the `step` of each of `ranks_here` throws; empty where it throws nothing.
inline std::vector<std::string> on_ranks(int ranks, std::chrono::milliseconds limit,
                                         const std::function<void(const Communicator&)>& step) {
  if (ranks > 1 && launched_processes(environment_variable)) {
    std::vector<std::string> errors(1);
    try {
      // First of all they meet: some may still be at what came before.
      static_cast<void>(Communicator::from_environment({.wait_limit = std::chrono::seconds(60)}));
      const Communicator communicator = Communicator::from_environment({.wait_limit = limit});
      if (communicator.ranks() != ranks) throw Error(fmt::format("launch {} processes", ranks));
      step(communicator);
    } catch (const std::exception& error) {
      errors.front() = error.what();
    }
    return errors;
  }
  const std::string key = Communicator::make_key();
  return errors_on_gpus(ranks,
                        [&](int rank) { step(Communicator(key, rank, ranks, {.wait_limit = limit})); });
}

/// Ranks of a process meet before one makes the next operator: memory that others give back meanwhile may
/// wait for all GPUs. A rank that leaves with an error is not waited for.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(std::ssize(ranks_here(ranks))) {}

  class Member {
   public:
    explicit Member(Meeting& meeting) : meeting_(meeting) {}
    ~Member() { meeting_.barrier_.arrive_and_drop(); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    void meet() { meeting_.barrier_.arrive_and_wait(); }

   private:
    Meeting& meeting_;
  };

 private:
  std::barrier<> barrier_;
};

/// One rank's operands and result on its GPU.
class Operands {
 public:
  /// The result: in the operator's memory where it has one, or always in the caller's.
  enum class Where : std::uint8_t { operators, callers };

  /// `pitches`: those of the operator; NaN lies between rows.
  Operands(const Operator& op, std::uint64_t seed, const Pitches& pitches = {},
           Where result = Where::operators)
      : plan_(op.plan()), op_(op), pitches_(pitches) {
    fill(seed);
    if (op.result() == nullptr || result == Where::callers) out_ = DeviceArray<Element>(elements());
    poison();
  }

  static Matrix a(const Plan& plan, std::uint64_t seed) {
    const Shape shape = a_shape(plan.problem, plan.rank);
    return random_matrix(plan.problem.data_type, shape.rows, shape.cols,
                         2 * (seed * 64 + static_cast<std::uint64_t>(plan.rank)));
  }
  static Matrix b(const Plan& plan, std::uint64_t seed) {
    const Shape shape = b_shape(plan.problem, plan.rank);
    return random_matrix(plan.problem.data_type, shape.rows, shape.cols,
                         2 * (seed * 64 + static_cast<std::uint64_t>(plan.rank)) + 1);
  }

  /// Other values at the same addresses.
  void fill(std::uint64_t seed) {
    replace(a_, with_pitch(a(plan_, seed), pitches_.a));
    replace(b_, with_pitch(b(plan_, seed), pitches_.b));
  }
  void poison() {
    if (elements() == 0) return;
    FLASHOVERLAP_CUDA(cudaMemset(target(), 0xFF, elements() * sizeof(Element)));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(nullptr));  // which no other stream waits for
  }

  void run(Operator& op, Stream stream) { op.run(a_.data(), b_.data(), target(), stream); }
  Matrix out() const {
    return download(plan_.problem.data_type, shape().rows, shape().cols, target(), pitches_.out);
  }

  std::size_t elements() const {
    return static_cast<std::size_t>(shape().rows * std::max(pitches_.out, shape().cols));
  }
  void* target() const { return out_.size() > 0 ? out_.data() : op_.result(); }

 private:
  const Buffer& shape() const { return plan_.buffer(BufferRole::out); }
  static void replace(DeviceArray<Element>& array, const Matrix& values) {
    if (array.size() == 0) {
      array = upload(values);
    } else {
      array.set(testing::elements_of(values));
    }
  }

  const Plan& plan_;
  const Operator& op_;
  Pitches pitches_;
  DeviceArray<Element> a_;
  DeviceArray<Element> b_;
  DeviceArray<Element> out_;
};

/// What is wrong with a rank's result of operands of this seed; empty where rounding explains it.
inline std::string what_is_wrong(const std::vector<Plan>& plans, int rank, const Matrix& out,
                                 std::uint64_t seed) {
  std::vector<Matrix> a;
  std::vector<Matrix> b;
  for (const Plan& plan : plans) {
    a.push_back(Operands::a(plan, seed));
    b.push_back(Operands::b(plan, seed));
  }
  const Plan& own = plans[static_cast<std::size_t>(rank)];
  const Deviation found =
      deviation(natural_result(own.output, out), reference_result(own.problem, own.output, a, b, rank));
  const double limit = own.problem.data_type == DataType::fp16 ? 2e-3 : 1e-2;
  if (found.relative < limit && found.element < 10 * limit) return "";
  return fmt::format("error {}, of one element {}", found.relative, found.element);
}

/// One run on operands of seed 1, which must be right.
inline void run_right(Operator& op, Operands& operands, const std::vector<Plan>& plans, int rank,
                      Stream stream) {
  operands.poison();
  operands.run(op, stream);
  op.wait();
  const std::string wrong = what_is_wrong(plans, rank, operands.out(), 1);
  if (!wrong.empty()) throw Error(wrong);
}

struct Setting {
  Operation operation;
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
  bool own_result = false;
};

inline std::vector<Plan> plans_of(const Setting& setting, int ranks) {
  return make_plans({.operation = setting.operation, .m = 1024, .n = 1536, .k = 256, .ranks = ranks},
                    {.strategy = setting.strategy,
                     .layout = setting.layout,
                     .multiprocessors = 24,
                     .comm_multiprocessors = 16,
                     .shots = setting.layout == Layout::partial ? 1 : 0});
}

inline std::string describe(const Setting& setting) {
  return fmt::format("{} {} {}{}", name(setting.operation), name(setting.strategy), name(setting.layout),
                     setting.own_result ? " own" : "");
}

}  // namespace flashoverlap::testing
