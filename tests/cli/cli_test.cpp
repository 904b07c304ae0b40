#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli_runs.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/search.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(Cli, SaysWhatItIs) {
  EXPECT_THAT(run("--version").out, StartsWith("flashoverlap "));
  EXPECT_EQ(run("--version").status, 0);
  EXPECT_EQ(run("--help").status, 0);
  for (const std::string command : {"demo", "plan", "check", "timeline"}) {
    const Outcome help = run(command + " --help");
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("flashoverlap " + command));
    EXPECT_THAT(help.out, HasSubstr("Examples:"));
    EXPECT_EQ(help.err, "");
  }
}

TEST_F(Cli, DemoShowsEveryOperation) {
  const Outcome demo = run("demo --output pictures --json");
  ASSERT_EQ(demo.status, 0) << demo.err;
  const json result = json::parse(demo.out);
  std::set<std::string> operations;
  for (const json& shown : result["cases"]) {
    operations.insert(shown["operation"]);
    EXPECT_LT(shown.at("error").get<double>(), 1e-2) << shown;  // null, which NaN becomes, is less
    EXPECT_GE(shown["groups"], 1) << shown;
    EXPECT_GT(shown["speed_up"]["h200-nvlink"], 0) << shown;
    const bool needs_peers =
        shown["strategy"] == "copy" || shown["strategy"] == "store" || shown["layout"] == "partial";
    EXPECT_EQ(shown["speed_up"]["rtx4090"].is_null(), needs_peers) << shown;
    EXPECT_THAT(content(path(shown["timeline"])), HasSubstr("<svg")) << shown;
  }
  EXPECT_EQ(operations.size(), 5u);
  EXPECT_GE(result["cases"].size(), 40u);
}

TEST_F(Cli, PlanPrintsASummary) {
  const Outcome plan = run("plan " + small + " --waves-per-group 3");
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("gemm_all_reduce, m 96, n 80, k 64, 2 ranks, bf16"));
  EXPECT_THAT(plan.out, HasSubstr("tiles      30 on each rank"));
  EXPECT_THAT(plan.out, HasSubstr("all_reduce"));
  EXPECT_THAT(plan.out, HasSubstr("predicted"));
  EXPECT_THAT(run("plan " + small + " --strategy store").out,
              HasSubstr("workspace  23,296 bytes: 23,040 written by peers"));

  const json as_json = json::parse(run("plan " + small + " --json").out);
  EXPECT_EQ(as_json["tiles"]["most"], 30);
  EXPECT_EQ(as_json["workspace_bytes"], json::parse(R"({"peer_written": 0, "collective": 0, "device": 0,
                                                       "shares": 0, "counters": 256})"));
  EXPECT_GT(as_json["prediction"]["latency_us"], 0);
}

/// The line of a summary that begins with this label.
std::string summary_line(const std::string& summary, const std::string& label) {
  std::istringstream lines(summary);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(label + ' ')) return line.substr(line.find_first_not_of(' ', label.size()));
  }
  ADD_FAILURE() << "no " << label << " in " << summary;
  return "";
}

TEST_F(Cli, TheOptionsOfASummaryGiveItsScheduleAgain) {
  for (const std::string problem :
       {"gemm_all_reduce --m 8192 --n 8192 --k 7168 --ranks 4",
        "gemm_all_reduce --m 16 --n 8192 --k 2048 --ranks 4",
        "gemm_all_reduce --m 64 --n 64 --k 64 --ranks 8",
        "gemm_reduce_scatter --m 4096 --n 4096 --k 1024 --ranks 4 --machine a800",
        "gemm_all_to_all --m 4096 --n 7168 --k 2048 --ranks 8 --machine rtx4090",
        "all_gather_gemm --m 8192 --n 4096 --k 4096 --ranks 4",
        "all_to_all_gemm --m 4096 --n 4096 --k 4096 --ranks 2 --exchange heads"}) {
    const std::string line = "plan " + problem + " --strategy best";
    const std::string options = summary_line(run(line).out, "options");
    const Outcome again = run("plan " + problem + " " + options + " --json");
    ASSERT_EQ(again.status, 0) << problem << options << again.err;
    EXPECT_EQ(json::parse(again.out)["schedule"], json::parse(run(line + " --json").out)["schedule"])
        << problem << ' ' << options;
  }
}

TEST_F(Cli, TheSummarySaysTheTileAndTheClusterAsTheirOptionsDo) {
  const Outcome plan =
      run("plan gemm_all_reduce --m 1024 --n 1024 --k 512 --ranks 2 --strategy store --cluster 2 --share-k "
          "--rounds 2 --groups 1 --multiprocessors 64");
  EXPECT_THAT(
      plan.out,
      AllOf(HasSubstr("schedule   store, natural, tiles of 128x256 in clusters of 2, k shared, 64 multi"),
            HasSubstr("options    --strategy store --tile 128x256 --cluster 2 --share-k "
                      "--multiprocessors 64 --comm-multiprocessors 0 --rounds 2 --groups 1\n"),
            HasSubstr(" of 32 clusters\n")))
      << plan.err;
}

TEST_F(Cli, OperandsMayLieWithTheirRowsContiguous) {
  const std::string weights =
      " all_gather_gemm --m 64 --n 96 --k 128 --ranks 2 --gather b --b-layout row_contiguous --strategy "
      "store";
  const Outcome summary = run("plan" + weights + " --save weights.json");
  EXPECT_EQ(summary.status, 0) << summary.err;
  EXPECT_THAT(summary.out, AllOf(HasSubstr("gathers b, rows of b contiguous"), HasSubstr("b: 64 x 96")));
  EXPECT_EQ(json::parse(run("plan" + weights + " --json").out)["problem"]["b_layout"], "row_contiguous");
  EXPECT_EQ(run("check --plan weights.json --runs 3 --delays 100").status, 0);
  const std::string experts =
      " gemm_all_to_all --m 40 --n 24 --k 16 --ranks 2 --experts 3 --random-destinations 1 "
      "--b-layout row_contiguous --tile 4x8 --multiprocessors 4";
  EXPECT_THAT(run("plan" + experts).out,
              AllOf(HasSubstr("3 experts on each rank, rows of b contiguous"), HasSubstr("b: 48 x 24")));
  EXPECT_EQ(run("check" + experts + " --runs 3 --delays 100").status, 0);
  expect_refused(words_of("plan all_to_all_gemm --m 64 --n 96 --k 128 --ranks 2 --a-layout row_contiguous"),
                 "--a-layout");
}

TEST_F(Cli, SearchIsNeverSlowerThanEveryWaveByItself) {
  const std::string problem = "plan gemm_all_reduce --m 4096 --n 4096 --k 4096 --ranks 4 --json";
  const json searched = json::parse(run(problem + " --search").out);
  const json equal = json::parse(run(problem).out);
  EXPECT_FALSE(searched["schedule"]["groups"].empty());
  const auto latency_us = [](const json& plan) {
    return plan.at("prediction").at("latency_us").get<double>();
  };
  EXPECT_LE(latency_us(searched), latency_us(equal) * 1.02);

  const json first = json::parse(run(problem + " --search --first-multiprocessors 132").out);
  EXPECT_EQ(first["schedule"]["first_multiprocessors"], 132);
  EXPECT_LE(latency_us(first), latency_us(searched) * 1.02);
}

TEST_F(Cli, TheGemmGetsTheMultiprocessorsThatCommunicationLeaves) {
  const std::string problem = "plan gemm_all_reduce --m 4096 --n 4096 --k 1024 --ranks 4 --json --strategy ";
  for (const int asked : {4, 16, 40, 131}) {
    const json schedule =
        json::parse(run(fmt::format("{} signal --comm-multiprocessors {}", problem, asked)).out)["schedule"];
    EXPECT_EQ(schedule["comm_multiprocessors"], asked);
    EXPECT_EQ(schedule["multiprocessors"], 132 - asked);
  }
  const auto given = [&](const std::string& options) {
    return json::parse(run(problem + options).out)["schedule"]["multiprocessors"].get<int>();
  };
  EXPECT_EQ(given("copy"), 132);
  EXPECT_EQ(given("signal --comm-multiprocessors 0"), given("signal")) << "0 is no limit";
}

TEST_F(Cli, TheBestStrategyIsTheFirstOfTheRankedTable) {
  const std::string problem = "plan gemm_reduce_scatter --m 4096 --n 4096 --k 2048 --ranks 4 --strategy best";
  const json best = json::parse(run(problem + " --json").out);
  const json& candidates = best["candidates"];
  ASSERT_GE(candidates.size(), 5u);
  EXPECT_EQ(candidates[0]["schedule"], best["schedule"]);
  EXPECT_EQ(candidates[0]["predicted_us"], best["prediction"]["latency_us"]);
  EXPECT_GE(best["prediction"].at("latency_us").get<double>(),
            best["prediction"].at("bound_us").get<double>());
  std::set<std::string> strategies;
  double before_us = 0;
  for (const json& candidate : candidates) {
    EXPECT_GE(candidate["predicted_us"], before_us);
    before_us = candidate["predicted_us"];
    strategies.insert(candidate["schedule"]["strategy"]);
  }
  EXPECT_EQ(strategies, (std::set<std::string>{"sequential", "signal", "copy", "store"}));
  const Outcome table = run(problem + " --machine h200-pcie --comm-multiprocessors 1");
  EXPECT_THAT(table.out, AllOf(HasSubstr("\nrank  strategy"), HasSubstr("\n   1  "),
                               HasSubstr("  sequential  "), Not(HasSubstr("  store  "))));
  EXPECT_EQ(
      json::parse(run("plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --json").out).count("candidates"),
      0u);
}

TEST_F(Cli, TheBestMayHaveALayoutThatTheOperationCanHave) {
  const std::string problem =
      "plan gemm_all_reduce --m 1024 --n 1024 --k 512 --ranks 2 --strategy best --layout ";
  for (const std::string layout : {"natural", "tiled", "partial"}) {
    const Outcome best = run(problem + layout);
    EXPECT_EQ(best.status, 0) << best.err;
  }
}

TEST_F(Cli, TheBestOnAMachineFileIsWhatTheSearchFindsOnTheMachine) {
  Machine machine = preset("h200-nvlink");
  machine.gemm_launch_microseconds /= 7;  // has all digits, as what is measured
  write("machine.json", machine_to_json(machine));
  for (const Operation operation : enumerators<Operation>) {
    const Problem problem{.operation = operation, .m = 2048, .n = 4096, .k = 2048, .ranks = 2};
    const std::vector<Candidate> found = search_schedules(problem, machine);
    const Outcome best =
        run(fmt::format("plan {} --m 2048 --n 4096 --k 2048 --ranks 2 --strategy best "
                        "--machine machine.json --save plans.json --json",
                        name(operation)));
    ASSERT_EQ(best.status, 0) << best.err;
    EXPECT_EQ(plans_from_json(content(path("plans.json"))).front().schedule, found.front().schedule);
    const json printed = json::parse(best.out);
    ASSERT_FALSE(printed["candidates"].empty());
    for (const json& shown : printed["candidates"])
      EXPECT_EQ(shown["predicted_us"], found.at(shown["rank"].get<std::size_t>() - 1).predicted_us);
  }
}

TEST_F(Cli, SavedPlansCanBeCheckedAndDrawn) {
  ASSERT_EQ(run("plan " + small + " --strategy copy --save plans.json").status, 0);
  const Outcome check =
      run("check --plan plans.json --runs 3 --delays 50 --seed 7 --workers 3 --wait-limit 60");
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("\nok\n"));

  EXPECT_EQ(run("timeline --plan plans.json --svg plans.svg --trace plans.trace").status, 0);
  EXPECT_THAT(content(path("plans.svg")), testing::AnyOf(StartsWith("<svg"), StartsWith("<?xml")));
  EXPECT_NO_THROW({ EXPECT_FALSE(json::parse(content(path("plans.trace"))).empty()); });
}

TEST_F(Cli, ASavedMachineCanBeChangedAndTaken) {
  const std::string problem = "plan gemm_all_reduce --m 1024 --n 1024 --k 512 --ranks 2 --json";
  const json preset = json::parse(run(problem + " --machine a800 --save-machine machine.json").out);
  const auto predicted = [&] {
    const Outcome plan = run(problem + " --machine machine.json");
    EXPECT_EQ(plan.status, 0) << plan.err;
    return json::parse(plan.out)["prediction"]["latency_us"].get<double>();
  };
  EXPECT_EQ(predicted(), preset["prediction"]["latency_us"].get<double>());
  EXPECT_EQ(run(problem + " --save-machine h200-nvlink").status, 0) << "a preset is no file";
  json machine = json::parse(content(path("machine.json")));
  machine["launch_microseconds"] = machine["launch_microseconds"].get<double>() + 1000;
  std::ofstream(path("machine.json")) << machine;
  EXPECT_GT(predicted(), preset["prediction"]["latency_us"].get<double>() + 900);
}

TEST_F(Cli, CheckRunsEveryDataType) {
  for (const std::string type : {"bf16", "fp16", "fp32"}) {
    const Outcome check = run("check " + small + " --dtype " + type + " --json");
    EXPECT_EQ(check.status, 0) << check.err;
    const json verdict = json::parse(check.out);
    EXPECT_TRUE(verdict["ok"]);
    EXPECT_EQ(verdict["limit"], type == "fp32" ? 1e-5 : 1e-2);
    EXPECT_LT(verdict.at("errors").at(0).get<double>(), verdict.at("limit").get<double>());
  }
}

TEST_F(Cli, DestinationsComeFromAFileOrASeed) {
  write("rows.json", "[[1,1,1,0],[0,1,0,0]]");
  const std::string problem =
      "check gemm_all_to_all --m 4 --n 6 --k 5 --ranks 2 --tile 2x2 --multiprocessors 2";
  EXPECT_EQ(run(problem + " --destinations rows.json").status, 0);
  EXPECT_EQ(run(problem + " --random-destinations 3").status, 0);
}

TEST_F(Cli, CheckReportsViolations) {
  ASSERT_EQ(run("plan " + small + " --save plans.json").status, 0);
  json document = json::parse(content(path("plans.json")));
  document["plans"][0]["tiles"].erase(3);
  write("plans.json", document.dump());
  const Outcome check = run("check --plan plans.json --json");
  EXPECT_EQ(check.status, 1);
  const json verdict = json::parse(check.out);
  EXPECT_FALSE(verdict["ok"]);
  EXPECT_EQ(verdict["violations"][0]["kind"], "coverage");
  const Outcome text = run("check --plan plans.json");
  const Outcome timeline = run("timeline --plan plans.json --svg plans.svg");
  EXPECT_THAT(text.out, AllOf(HasSubstr("\nviolation  coverage: "), HasSubstr("\nFAILED\n")));
  for (const Outcome& outcome : {check, text, timeline}) {
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, StartsWith("flashoverlap: --plan plans.json: coverage: "));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
}

TEST_F(Cli, SaysWhenItCannotWrite) {
  EXPECT_EQ(run({"--help"}, "/dev/full").status, 1);
  const auto fill_stderr = [] { dup2(open("/dev/full", O_WRONLY), STDERR_FILENO); };
  EXPECT_EQ(finish(start({"plan"}, "", fill_stderr)).status, 2);
  expect_refused({"demo", "--output", "/dev/null/out"}, "--output = /dev/null/out: cannot be created: ");
  const Outcome full = run("plan " + small + " --save /dev/full");
  EXPECT_EQ(full.status, 1) << "a full disk is no wrong input";
  EXPECT_THAT(full.err, HasSubstr("--save = /dev/full: cannot be written: No space left"));
}

TEST_F(Cli, AnotherFamilyOfKernelsCanBeAskedFor) {
  const auto plan_with = [&](const char* kernels) {
    const std::vector<std::string> words =
        words_of("plan gemm_reduce_scatter --m 1024 --n 1024 --k 256 --ranks 4 --tile 128x224");
    return finish(start(words, "", [=] { setenv("FLASHOVERLAP_KERNELS", kernels, 1); }));
  };
  EXPECT_THAT(plan_with("sm90").out, HasSubstr("GPUs       of h200-nvlink can run this"));
  EXPECT_THAT(plan_with("sm86").out, HasSubstr("has no sm80 kernel; there are 128x256, 256x128, 128x128"));
  for (const char* kernels : {"sm75", "80", "sm80x", ""}) {
    const Outcome outcome = plan_with(kernels);
    EXPECT_EQ(outcome.status, 2) << kernels;
    EXPECT_THAT(outcome.err, HasSubstr(std::string("FLASHOVERLAP_KERNELS = ") + kernels + ": must be"));
  }
}

TEST_F(Cli, PlansSayWhetherGpusCanRunThem) {
  const std::string problem = "plan gemm_reduce_scatter --m 1024 --n 1024 --k 256 --ranks 4";
  const std::vector<std::pair<std::string, std::string>> lines{
      {"", "GPUs       of h200-nvlink can run this"},
      {" --strategy copy", "GPUs       of h200-nvlink can run this"},
      {" --tile 77x33", "GPUs       of h200-nvlink cannot run this: tile = 77x33"},
      {" --tile 128x192", "GPUs       of h200-nvlink cannot run this: tile = 128x192 in clusters of 1"},
      {" --dtype fp32", "GPUs       of h200-nvlink cannot run this: data_type = fp32"},
      {" --machine a800", "GPUs       of a800 can run this"},
      {" --machine rtx4090", "GPUs       of rtx4090 can run this"},
      {" --machine a800 --tile 128x224", "GPUs       of a800 cannot run this: tile = 128x224"},
  };
  for (const auto& [options, expected] : lines) {
    const Outcome outcome = run(words_of(problem + options));
    EXPECT_EQ(outcome.status, 0) << options;
    EXPECT_THAT(outcome.out, testing::HasSubstr(expected)) << options;
  }
  const json plan = json::parse(run(words_of(problem + " --dtype fp32 --json")).out);
  EXPECT_EQ(plan["gpus"]["can_run"], false);
  EXPECT_THAT(plan["gpus"]["obstacle"], testing::HasSubstr("data_type = fp32"));
  const Outcome checked =
      run(words_of("check gemm_all_reduce --m 64 --n 64 --k 64 --ranks 2 --tile 16x16 --multiprocessors 8"));
  EXPECT_THAT(checked.out, testing::HasSubstr("GPUs       of h200-nvlink cannot run this: tile = 16x16"));
}

}  // namespace
}  // namespace flashoverlap
