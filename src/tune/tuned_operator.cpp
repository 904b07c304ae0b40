#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/tuner.hpp"

namespace flashoverlap {
namespace {

/// Leaves out what the operator's options forbid: padding.
TunerOptions within(const OperatorOptions& options, TunerOptions tuning) {
  if (options.pitches == Pitches{}) return tuning;
  tuning.allows = [options, allows = tuning.allows](const Problem& problem, const Schedule& schedule) {
    if (allows && !allows(problem, schedule)) return false;
    const std::vector<Plan> plans = make_plans(problem, schedule);
    const auto can_have_padding = [&](BufferRole role, std::int64_t pitch) {
      return pitch == 0 || padding_obstacle(plans, role, options.own_result).empty();
    };
    return can_have_padding(BufferRole::a, options.pitches.a) &&
           can_have_padding(BufferRole::b, options.pitches.b) &&
           can_have_padding(BufferRole::out, options.pitches.out);
  };
  return tuning;
}

std::vector<Plan> tuned_plans(const Problem& problem, const Communicator& communicator,
                              const OperatorOptions& options, TunerOptions tuning) {
  Tuner tuner(communicator, within(options, std::move(tuning)));
  return make_plans(problem, tuner.schedule(problem));
}

}  // namespace

Operator::Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options)
    : Operator(problem, communicator, options, TunerOptions{}) {}

Operator::Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options,
                   const TunerOptions& tuning)
    : Operator(tuned_plans(problem, communicator, options, tuning), communicator, options) {}

}  // namespace flashoverlap
