// Random changes of valid plans: whatever the validator accepts runs right, however unlucky the timing.
// FLASHOVERLAP_MUTANTS says how many, FLASHOVERLAP_SEED repeats a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "support/hand_written_plans.hpp"
#include "support/plan_interpreter.hpp"
#include "support/plan_mutator.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using Plans = std::vector<Plan>;

constexpr int runs = 3;
constexpr int mutants_of_one = 40;

int wanted_mutants() {
  const char* const number = std::getenv("FLASHOVERLAP_MUTANTS");
  return number == nullptr ? 10'000 : std::atoi(number);
}

Plans hand_written_plans(testing::RandomCases& cases) {
  const int ranks = cases.between(2, 4);
  const auto extent = [&] { return std::int64_t{2} * ranks * cases.between(1, 2); };
  const auto problem = [&](Operation operation) {
    return Problem{.operation = operation, .m = extent(), .n = extent(), .k = extent(), .ranks = ranks};
  };
  switch (cases.between(0, 9)) {
    case 0: return hand_written::signalled_all_reduce(problem(Operation::gemm_all_reduce));
    case 1: return hand_written::sequential_reduce_scatter(problem(Operation::gemm_reduce_scatter));
    case 2: return hand_written::copied_reduction(problem(Operation::gemm_reduce_scatter));
    case 3: return hand_written::copied_reduction(problem(Operation::gemm_all_reduce));
    case 4: return hand_written::exchanged_all_to_all(problem(Operation::gemm_all_to_all));
    case 5: return hand_written::stored_all_to_all(problem(Operation::gemm_all_to_all));
    case 6: return hand_written::all_gather_then_gemm(problem(Operation::all_gather_gemm));
    case 7: {
      Problem gathers_b = problem(Operation::all_gather_gemm);
      gathers_b.gathered = Operand::b;
      return hand_written::stored_all_gather(gathers_b);
    }
    case 8: {
      Problem heads = problem(Operation::all_to_all_gemm);
      heads.exchange = Exchange::heads;
      return hand_written::exchanged_heads(heads);
    }
    default: return hand_written::reduce_scatter_of_parts(problem(Operation::gemm_reduce_scatter));
  }
}

/// Small ones, so that many can be tried.
Plans drawn_plans(testing::RandomCases& cases) {
  if (cases.between(0, 3) == 0) return hand_written_plans(cases);
  for (;;) {
    const testing::Case drawn = cases.next(12);
    if (drawn.problem.ranks > 4) continue;
    Plans plans = make_plans(drawn.problem, drawn.schedule);
    if (plans[0].tiles.size() <= 16 && plans[0].messages.size() <= 24) return plans;
  }
}

std::optional<std::string> failure_of(const Plans& plans, std::uint64_t seed) {
  return testing::PlanInterpreter(plans, runs, seed).failure();
}

/// Plans that are wrong in one way or another: the interpreter must find out.
TEST(Interpreter, FindsWhatIsWrong) {
  const auto expect_failure = [](const Plans& plans, const std::string& expected) {
    const auto failure = failure_of(plans, 1);
    ASSERT_TRUE(failure) << "not found: " << expected;
    EXPECT_THAT(*failure, ::testing::HasSubstr(expected));
  };
  const Plans reduced = hand_written::copied_reduction({Operation::gemm_reduce_scatter, 8, 8, 8, 2});
  const Plans gathered = hand_written::all_gather_then_gemm({Operation::all_gather_gemm, 8, 8, 8, 2});

  Plans plans = reduced;
  plans[0].tiles.back().store_wait = none;
  expect_failure(plans, "rank 0's inbox, rows 3 to 3 is read while it may be written");
  plans = reduced;
  for (Plan& plan : plans) plan.messages[1].after_tiles = true;
  expect_failure(plans, "nothing can go on");
  plans = reduced;  // no credit of rank 1
  plans[0].counters[1].target = 0;
  plans[1].messages[0].raises.clear();
  plans[0].messages[1].waits.pop_back();
  expect_failure(plans, "rank 1's inbox");
  plans = gathered;
  plans[1].messages.back().after_tiles = false;
  expect_failure(plans, "rank 1's counter 0 is reset while tile");
  plans = gathered;
  plans[0].messages.back().waits.clear();
  expect_failure(plans, "rank 0's ");
  plans = gathered;
  std::swap(plans[1].tiles[0].a_row, plans[1].tiles[2].a_row);
  expect_failure(plans, "rank 1's result is");
}

TEST(Mutants, PlansOfPlannersRunRight) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  for (int index = 0; index < 200; ++index) {
    const Plans plans = drawn_plans(cases);
    for (const Finding& finding : find_violations(plans)) FAIL() << finding.detail << plans_to_json(plans);
    const auto failure = failure_of(plans, seed + static_cast<std::uint64_t>(index));
    ASSERT_FALSE(failure) << *failure << ", FLASHOVERLAP_SEED=" << seed << " plan " << index << "\n"
                          << plans_to_json(plans);
  }
}

TEST(Mutants, AreRejectedOrRunRight) {
  const std::uint64_t seed = testing::base_seed();
  std::printf("FLASHOVERLAP_SEED=%llu\n", static_cast<unsigned long long>(seed));
  testing::RandomCases cases(seed);
  testing::PlanMutator mutator(seed);
  std::map<std::string_view, int> verdicts;
  Plans plans;
  const int mutants = wanted_mutants();
  for (int index = 0; index < mutants; ++index) {
    if (index % mutants_of_one == 0) plans = drawn_plans(cases);
    const Plans mutant = mutator.mutant_of(plans);
    const std::vector<Finding> findings = find_violations(mutant, 1);
    ++verdicts[findings.empty() ? "accepted" : name(findings[0].violation)];
    if (!findings.empty()) continue;
    const auto failure = failure_of(mutant, seed + static_cast<std::uint64_t>(index));
    if (!failure) {
      if (cases.between(0, 1) == 0) plans = mutant;  // changes add up
      continue;
    }
    const std::string file = ::testing::TempDir() + fmt::format("mutant-{}-{}.json", seed, index);
    std::ofstream(file) << plans_to_json(mutant);
    ADD_FAILURE() << "the validator accepts " << file << ", but " << *failure;
  }
  for (const auto& [verdict, count] : verdicts) std::printf("%7d %s\n", count, std::string(verdict).c_str());
  if (mutants < 1000) return;  // of few plans
  EXPECT_GE(10 * verdicts["accepted"], mutants) << "little was run";
  for (const Violation violation : {Violation::structure, Violation::coverage, Violation::counter,
                                    Violation::deadlock, Violation::race}) {
    EXPECT_GT(verdicts[name(violation)], 0) << name(violation);
  }
}

}  // namespace
}  // namespace flashoverlap
