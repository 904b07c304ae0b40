#include <algorithm>
#include <array>

#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/tuner.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {
namespace {

/// Leaves out what the operator's options forbid on any rank: padding.
TunerOptions within(const Problem& problem, const OperatorOptions& options, const Communicator& communicator,
                    TunerOptions tuning) {
  validate(problem);
  const int rank = communicator.rank();
  const auto is_padded = [](std::int64_t pitch, const Shape& rows) {
    return pitch != 0 && pitch != rows.cols ? 1.0 : 0.0;
  };
  const Pitches& pitches = options.pitches;
  const std::array has_padding{is_padded(pitches.a, a_shape(problem, rank)),
                               is_padded(pitches.b, b_shape(problem, rank)),
                               is_padded(pitches.out, out_shape(problem, rank))};
  const std::vector<double> some_rank_has = GpuRank(communicator).maxima(has_padding);
  if (std::ranges::count(some_rank_has, 1.0) == 0) return tuning;
  const bool own_result = options.own_result;
  tuning.allows = [=, allows = tuning.allows](const Problem& one, const Schedule& schedule) {
    if (allows && !allows(one, schedule)) return false;
    const std::vector<Plan> plans = make_plans(one, schedule);
    const auto can_have_padding = [&](std::size_t place, BufferRole role) {
      return some_rank_has[place] == 0 || padding_obstacle(plans, role, own_result).empty();
    };
    return can_have_padding(0, BufferRole::a) && can_have_padding(1, BufferRole::b) &&
           can_have_padding(2, BufferRole::out);
  };
  return tuning;
}

std::vector<Plan> tuned_plans(const Problem& problem, const Communicator& communicator,
                              const OperatorOptions& options, TunerOptions tuning) {
  Tuner tuner(communicator, within(problem, options, communicator, std::move(tuning)));
  return make_plans(problem, tuner.schedule(problem));
}

}  // namespace

Operator::Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options)
    : Operator(problem, communicator, options, TunerOptions{}) {}

Operator::Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options,
                   const TunerOptions& tuning)
    : Operator(tuned_plans(problem, communicator, options, tuning), communicator, options) {}

}  // namespace flashoverlap
