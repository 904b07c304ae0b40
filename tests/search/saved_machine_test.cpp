// Without a GPU the search finds on a machine file what the tuner's search finds on the machine itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "flashoverlap/gpu_support.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// Every number that is not a count becomes a third larger, so that it has all of a double's digits, as what
/// is measured has.
void add_digits(json& value) {
  if (value.is_number_float()) value = value.get<double>() * 4 / 3;
  if (value.is_structured())
    for (json& part : value) add_digits(part);
}

/// Presets, and those of bench/results in the present format.
std::vector<Machine> machines() {
  std::vector<Machine> all;
  for (const std::string& name : preset_names()) {
    json document = json::parse(machine_to_json(preset(name)));
    add_digits(document);
    all.push_back(machine_from_json(document.dump()));
  }
  for (const auto& file : fs::directory_iterator(FLASHOVERLAP_RESULTS)) {
    if (!file.path().filename().string().starts_with("machine-")) continue;
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (json::parse(text)["schema_version"] == machine_schema_version) all.push_back(machine_from_json(text));
  }
  EXPECT_GT(all.size(), preset_names().size());
  return all;
}

TEST(SavedMachine, HasTheSameCandidates) {
  for (const Machine& machine : machines()) {
    const Machine saved = machine_from_json(machine_to_json(machine));
    for (const Operation operation : enumerators<Operation>) {
      for (const std::int64_t m : {1024, 6000}) {
        SCOPED_TRACE(fmt::format("{}, {}, m {}", machine.name, name(operation), m));
        const Problem problem{.operation = operation, .m = m, .n = 4096, .k = 3072, .ranks = 2};
        const auto before = search_schedules(problem, machine);
        const auto after = search_schedules(problem, saved);
        ASSERT_EQ(before.size(), after.size());
        for (std::size_t place = 0; place < before.size(); ++place) {
          ASSERT_EQ(before[place].schedule, after[place].schedule) << place;
          ASSERT_EQ(before[place].predicted_us, after[place].predicted_us) << place;
        }
      }
    }
  }
}

/// The tuner leaves out what the GPUs cannot run, `plan` does not.
TEST(SavedMachine, HasNoCandidateThatItsGpusCannotRun) {
  const Machine machine = preset("h200-nvlink");
  for (const Operation operation : enumerators<Operation>) {
    const Problem problem{.operation = operation, .m = 1000, .n = 2008, .k = 1032, .ranks = 2};
    for (const Candidate& candidate : search_schedules(problem, machine))
      EXPECT_EQ(gpu_obstacle(make_plans(problem, candidate.schedule), machine), std::nullopt)
          << name(operation);
  }
}

}  // namespace
}  // namespace flashoverlap
