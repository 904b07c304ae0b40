// `bench` and `check --gpus` as far as they come without a GPU.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli_runs.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

#ifdef FLASHOVERLAP_HAS_NCCL
/// CUDA gives the reason: there is no driver, or no GPU.
constexpr auto* without_gpus = "flashoverlap: no GPU can be used here: [^\n]+\n";
#else
constexpr auto* without_gpus = "flashoverlap: this flashoverlap was built without CUDA and NCCL\n";
#endif

const std::string plan_of_two_ranks =
    "plan gemm_all_reduce --m 256 --n 512 --k 64 --ranks 2 --save plans.json";

class GpuCli : public Cli {
 protected:
  GpuCli() {
    for (const char* variable : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})
      unsetenv(variable);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }

  /// `error`: a regular expression.
  void expect_failure(const std::string& line, const std::string& error) const {
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.status, 1) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, testing::MatchesRegex(error)) << line;
  }
};

TEST_F(GpuCli, HelpNeedsNoGpu) {
  for (const std::string command :
       {"bench", "bench gemm", "bench rms_norm", "bench all_gather_gemm", "check"}) {
    const Outcome help = run(command + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("flashoverlap " + command));
    EXPECT_EQ(help.err, "") << command;
  }
}

TEST_F(GpuCli, EverythingEndsAlikeWithoutAGpu) {
  ASSERT_EQ(run(plan_of_two_ranks).status, 0);
  for (const std::string line :
       {"bench gemm", "bench rms_norm", "bench gemm_all_reduce --gpus 2", "bench --plan plans.json --gpus 2",
        "bench all_to_all_gemm --gpus 64 --strategy copy,store,p2p",
        "bench gemm_all_reduce --gpus 2 --m 256 --n 512 --k 64 --save best.json --json a.json --timeline "
        "a.svg",
        "check --gpus 2", "check all_gather_gemm all_to_all_gemm --gpus 64 --graph",
        "check --plan plans.json --gpus 2 --runs 3 --delays 10 --seed 4 --graph --wait-limit 5"}) {
    expect_failure(line, without_gpus);
  }
  EXPECT_FALSE(fs::exists(path("best.json")));
}

TEST_F(GpuCli, WrongInputIsRefusedBeforeGpusAreLookedFor) {
  const std::vector<std::pair<std::string, std::string>> lines{
      {"check --gpus 0", "--gpus = 0"},
      {"check --gpus -1", "--gpus = -1"},
      {"check --gpus 65", "--gpus = 65"},
      {"check --gpus two", "--gpus = two"},
      {"check --gpus", "--gpus = (missing)"},
      {"check --graph", "--graph = (given): needs --gpus"},
      {"check gemm_all_reduce gemm_reduce_scatter", "ARGUMENT = gemm_reduce_scatter"},
      {"check gemm_all_reduce gemm --gpus 2", "OPERATION = gemm: must be one of"},
      {"check --gpus 2 --gather b", "--gather = (given): cannot be combined with --gpus"},
      {"check --gpus 2 --ranks 2", "--ranks = (given)"},
      {"check --gpus 2 --tile 64x64", "--tile = (given)"},
      {"check --gpus 2 --json", "--json = (given)"},
      {"check --gpus 2 --dtype fp32", "--dtype = fp32: must be bf16 or fp16"},
      {"check --gpus 2 --n 12", "--n = 12: must be a multiple of 8"},
      {"check --gpus 2 --k 12", "--k = 12: must be a multiple of 8"},
      {"check gemm_reduce_scatter --gpus 2 --m 7", "--m = 7: must be a multiple of ranks"},
      {"check --gpus 2 --strategy copy --layout partial", "--layout = partial: needs --strategy store"},
      {"check --gpus 2 --strategy copy --layout tiled", "--layout = tiled: needs --strategy signal"},
      {"check --gpus 2 --strategy sequential --layout tiled", "--layout = tiled: needs --strategy signal"},
      {"bench gemm_all_reduce", "--gpus = (missing): must be given"},
      {"bench routes", "--gpus = (missing): must be given"},
      {"tune machine", "--gpus = (missing): must be given"},
      {"tune machine --gpus 1", "--gpus = 1: must be an integer between 2 and 64"},
      {"tune gemm_all_reduce", "--gpus = (missing): must be given"},
      {"tune --model llama3-8b", "--gpus = (missing): must be given"},
      {"tune all_gather_gemm --gpus 2 --gather b --experts 2", "--experts = 2: must be 1 with --gather b"},
      {"bench gemm_all_reduce --gpus 0", "--gpus = 0"},
      {"bench gemm_all_reduce --gpus 2 --m 0", "--m = 0"},
      {"bench gemm_all_reduce --gpus 2 --m 64,", "--m = \"\""},
      {"bench gemm_all_reduce --gpus 2 --n 64", "--k = (missing)"},
      {"bench gemm_all_reduce --gpus 2 --k 64", "--n = (missing)"},
      {"bench gemm_all_reduce --gpus 2 --n 64 --k 12", "--k = 12"},
      {"bench gemm_all_reduce --gpus 2 --dtype fp32", "--dtype = fp32"},
      {"bench gemm_all_to_all --gpus 2 --experts 2 --pass weight_gradient", "--experts = 2"},
      {"bench gemm_all_reduce --gpus 2 --strategy signal,fast", "--strategy = fast"},
      {"bench gemm_all_reduce --gpus 2 --strategy store --layout tiled", "--layout = tiled"},
      {"bench gemm_all_reduce --gpus 2 --gather b", "ARGUMENT = --gather: is not known here"},
      {"bench all_gather_gemm --gpus 2 --rms-norm", "ARGUMENT = --rms-norm: is not known here"},
      {"bench all_gather_gemm --gpus 2 --gather c", "--gather = c"},
      {"bench all_gather_gemm --gpus 3 --m 9 --n 64 --k 64 --gather b", "--n = 64"},
      {"bench gemm_all_reduce --gpus 2 --strategy sequential --layout tiled", "--layout = tiled"},
      {"bench gemm_all_reduce --gpus 2 --comm-multiprocessors 0", "--comm-multiprocessors = 0"},
      {"bench gemm_all_reduce --gpus 2 --comm-sms 8", "ARGUMENT = --comm-sms: is not known here"},
      {"bench gemm_all_reduce --gpus 2 --repetitions 0", "--repetitions = 0"},
      {"bench gemm_all_reduce --gpus 2 --json same --timeline same",
       "--timeline = same: must be another file than --json"},
      {"bench gemm_all_reduce --gpus 2 --json /no/such/folder/file",
       "--json = /no/such/folder/file: cannot be created"},
      {"bench gemm_all_reduce --gpus 2 --save p.json",
       "--save = p.json: needs a single shape: one --m, with"},
      {"bench gemm_all_reduce --gpus 2 --save p.json --m 64", "--save = p.json: needs a single shape"},
      {"bench gemm_all_reduce --gpus 2 --save p.json --m 64,128 --n 64 --k 64",
       "--save = p.json: needs a single shape"},
      {"bench gemm_reduce_scatter --gpus 2 --m 7", "--m = 7: must be a multiple of ranks"},
      {"bench", "COMMAND = (missing): must be a benchmark"},
      {"bench --gpus 2", "COMMAND = (missing): must be a benchmark"},
      {"bench --gpus 2 gemm_all_reduce", "--gpus = (given): must come after gemm_all_reduce"},
      {"bench --json a.json gemm", "--json = (given): must come after gemm"},
      {"bench gemm --m abc", "--m = abc: must be an integer between 1"},
      {"bench gemm --m 1024,,2048", "--m = \"\": must be an integer"},
      {"bench gemm --ranks 3", "--ranks = 3: must be 1, 2, 4 or 8"},
      {"bench gemm --json /no/such/folder/file", "--json = /no/such/folder/file: cannot be created"},
      {"bench rms_norm --m 12", "--m = 12: must be a multiple of 8"},
  };
  for (const auto& [line, start] : lines) expect_refused(words_of(line), start);
}

TEST_F(GpuCli, SavedPlansThatGpusCannotRunAreRefused) {
  ASSERT_EQ(run(plan_of_two_ranks).status, 0);
  const std::string plan = "plan gemm_all_to_all --m 256 --n 512 --k 64 --ranks 2 ";
  ASSERT_EQ(run("plan gemm_all_reduce --m 250 --n 512 --k 64 --ranks 2 --a-layout row_contiguous --save "
                "rows.json")
                .status,
            0);
  ASSERT_EQ(run(plan + "--dtype fp32 --save fp32.json").status, 0);
  ASSERT_EQ(run("plan gemm_all_reduce --m 256 --n 500 --k 64 --ranks 2 --save odd.json").status, 0);
  for (const std::string command : {"check", "bench"}) {
    const std::vector<std::pair<std::string, std::string>> refused{
        {"--plan plans.json --gpus 4", "--gpus = 4: must be 2, the ranks of --plan"},
        {"--plan absent.json --gpus 2", "--plan = absent.json: cannot be opened"},
        {"--plan rows.json --gpus 2", "--plan rows.json: problem.m = 250: must be a multiple of 8"},
        {"--plan fp32.json --gpus 2", "--plan fp32.json: problem.data_type = fp32: must be bf16 or fp16"},
        {"--plan odd.json --gpus 2", "--plan odd.json: problem.n = 500: must be a multiple of 8"},
    };
    for (const auto& [options, start] : refused) expect_refused(words_of(command + " " + options), start);
  }
  expect_refused(words_of("bench --plan plans.json"), "--gpus = (missing)");
  expect_refused(words_of("bench --plan plans.json --gpus 2 --timeline plans.json"),
                 "--timeline = plans.json: must be another file than --plan");
  expect_refused(words_of("check --plan plans.json --gpus 2 --m 64"),
                 "--m = (given): cannot be combined with --plan");
  expect_refused(words_of("check --plan plans.json --gpus 2 --strategy copy"), "--strategy = (given)");
  expect_refused(words_of("check --plan plans.json --gpus 2 --workers 2"), "--workers = (given)");
}

TEST_F(GpuCli, SavedPlansAreProvenFirst) {
  ASSERT_EQ(run(plan_of_two_ranks).status, 0);
  json document = json::parse(content(path("plans.json")));
  document["plans"][1]["tiles"].erase(0);
  write("damaged.json", document.dump());
  for (const std::string line :
       {"check --plan damaged.json --gpus 2", "bench --plan damaged.json --gpus 2"}) {
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.status, 1) << line;
    EXPECT_THAT(outcome.err, StartsWith("flashoverlap: --plan damaged.json: coverage: ")) << line;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << line;
  }
}

#ifdef FLASHOVERLAP_HAS_NCCL
TEST_F(GpuCli, ALaunchersWorldIsTheNumberOfGpus) {
  const std::vector<std::pair<std::string, std::string>> launchers{
      {"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}};
  for (const auto& [rank, ranks] : launchers) {
    setenv(rank.c_str(), "1", 1);
    setenv(ranks.c_str(), "3", 1);
    expect_refused({"check", "--gpus", "2"}, "--gpus = 2: must be 3, the " + ranks + " of the launcher");
    setenv(ranks.c_str(), "three", 1);
    expect_refused({"check", "--gpus", "2"}, ranks + " = \"three\"");
    unsetenv(rank.c_str());
    unsetenv(ranks.c_str());
  }
}
#endif

}  // namespace
}  // namespace flashoverlap
