/// Operators that are measured against each other on rotating operands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "flashoverlap/operator.hpp"
#include "flashoverlap/reader.hpp"
#include "flashoverlap/workspace.hpp"
#include "measure/captured_runs.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/other_kernels.hpp"
#include "measure/residual_norm.hpp"

namespace flashoverlap {

inline constexpr int trial_repetitions = 5;
/// A sample is a graph of runs that last at least this long together.
inline constexpr double sample_us = 2000;
/// Samples in rows that are of shorter runs scatter by some per cent, as clocks fall for 0.1 s and more now
/// and then. In turns all are hit alike.
inline constexpr double least_us_in_rows = 5000;

/// Random operands: together several times the L2 cache.
std::vector<GpuOperands> rotated_operands(const GpuRank& gpu, const Problem& problem);
/// What they take on each rank.
std::int64_t rotated_bytes(const Problem& problem);

/// How operators are measured.
struct Use {
  Reader reader = Reader::caller;  ///< norm: a `ResidualNorm` reads each result
  /// Results stay in the operators' memory, which NCCL shares among GPUs. Else they end in ordinary memory of
  /// the caller; a norm reads those that peers write in the operator's.
  bool own_result = true;
  /// In a model these come before each run, so that caches hold nothing of it, and less of a kernel which
  /// begins early is hidden. Null: run follows run.
  const OtherKernels* before = nullptr;
  /// That all operators share which are measured, as those of a model do. Null: each has its own.
  const Workspace* workspace = nullptr;

  bool is_in_model() const { return before != nullptr; }
};

/// An operator with its result. Ranks meet before they give one back.
class BoundOperator {
 public:
  BoundOperator(const GpuRank& gpu, std::vector<Plan> plans, Use use = {}, bool record_timeline = false);

  void run(const GpuOperands& operands);

  /// Relative, from what the libraries compute; of the result, or of what follows it if that is worse.
  double error(const GpuOperands& operands, GpuBaseline& baseline);

  const std::vector<Plan>& plans() const { return plans_; }
  const Plan& plan() const { return plans_[static_cast<std::size_t>(gpu_.rank())]; }
  RunTimes timeline() const { return operator_->timeline(); }

 private:
  /// The caller's, or else the operator's.
  void* result() { return out_.size() > 0 ? out_.data() : operator_->result(); }

  const GpuRank& gpu_;
  std::vector<Plan> plans_;
  GpuComparison compare_;
  std::unique_ptr<Operator> operator_;
  DeviceArray<Element> out_;  // the caller's, if it has one
  std::optional<ResidualNorm> norm_;
};

/// Something that is measured, on one of the sets of operands.
using Variant = std::function<void(const GpuOperands&)>;

struct Samples {
  std::vector<double> gpu_us;   ///< by repetition, of the slowest rank
  std::vector<double> host_us;  ///< by repetition, of this rank
};

/// Whose turn it is.
enum class Turns : std::uint8_t {
  interleaved,  ///< every variant once in each repetition, in an order of its own: all at the same clocks
  in_rows,      ///< every variant for a while: each at the clocks that its own power leaves it
};

/// A variant in a graph.
struct CapturedVariant {
  std::unique_ptr<CapturedRuns> runs;
  std::vector<double> host_us;  ///< what enqueueing it took, of eager runs before
};

/// `first`: the set of operands that it begins with. Collective.
CapturedVariant capture(const GpuRank& gpu, const std::vector<GpuOperands>& operands, const Variant& variant,
                        std::size_t first);

/// By variant and repetition, of the slowest rank. Variants that take less than `least_us_in_rows` are always
/// interleaved. All ranks have run everything when it returns.
std::vector<std::vector<double>> take_samples(const GpuRank& gpu,
                                              const std::vector<const CapturedRuns*>& variants,
                                              int repetitions, Turns turns = Turns::interleaved);

/// Captures variants and takes samples of them.
std::vector<Samples> measure_all(const GpuRank& gpu, const std::vector<GpuOperands>& operands,
                                 const std::vector<Variant>& variants, int repetitions);

}  // namespace flashoverlap
