// What the command `flashoverlap` refuses, and how.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli_runs.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;

/// Command lines that break one rule each, with how the refusal begins.
TEST_F(Cli, WrongInputIsRefusedInOneLine) {
  write("nonsense.json", "nonsense");
  write("empty.json", "");
  write("version.json", "{\"schema_version\":99}");
  write("machine.json", "{\"schema_version\":1,\"name\":7}");
  write("two_lists.json", "[[0,0],[0,0]]");
  write("no_lists.json", "[]");
  write("far_ranks.json", "[[0,64]]");
  write("near_ranks.json", "[[0,9]]");
  write("floats.json", "[[0,0.5]]");
  write("experts.json", "[[3,0,0,0],[3,0,0,0]]");
  write("nested.json", std::string(100'000, '['));
  write("sparse.json", "");
  std::filesystem::resize_file(path("sparse.json"), 2'000'000'000);
  std::filesystem::create_symlink("loop", path("pool"));
  std::filesystem::create_symlink("pool", path("loop"));
  std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "COMMAND = (missing)"},
      {{""}, "ARGUMENT = "},
      {{"destroy"}, "ARGUMENT = destroy"},
      {{"--m", "5"}, "ARGUMENT = --m"},
      {{"demo", "plan"}, "ARGUMENT = plan"},
      {{"demo", "--output"}, "--output = (missing)"},
      {{"demo", "--output", ""}, "--output = \"\""},
      {{"demo", "--seed", "-1"}, "--seed = -1"},
      {{"demo", "--fast"}, "ARGUMENT = --fast"},
      {{"plan"}, "OPERATION = (missing)"},
      {{"plan", "gemm"}, "OPERATION = gemm"},
      {{"plan", ""}, "OPERATION = \"\""},
      {{"plan", "gemm_all_reduce\n"}, "OPERATION = \"gemm_all_reduce\\n\""},
      {{"plan", std::string(10'000, 'x')}, "OPERATION = "},
      {{"check", "--plan", "absent.json"}, "--plan = absent.json: cannot be opened: No such file"},
      {{"check", "--plan", "."}, "--plan = .: must be a file"},
      {{"check", "--plan", ""}, "--plan = \"\""},
      {{"check", "--plan", "/dev/zero"}, "--plan = /dev/zero: must be a file or a pipe, not a device"},
      {{"check", "--plan", "loop"}, "--plan = loop: cannot be opened: Too many levels of symbolic links"},
      {{"check", "--plan", "sparse.json"}, "--plan = sparse.json: must not be larger than 1.5 GB"},
      {{"check", "--plan", "nested.json"}, "--plan nested.json: plan = 33 levels"},
      {{"check", "--plan", std::string(5'000, 'x')}, "--plan = xxx"},
      {{"demo", "--output", "loop"}, "--output = loop: cannot be created: Too many levels of symbolic links"},
      {{"check", "--plan", "nonsense.json"}, "--plan nonsense.json: plan = line 1, column 2: is not JSON"},
      {{"check", "--plan", "empty.json"}, "--plan empty.json: plan = line 1, column 1: is not JSON"},
      {{"check", "--plan", "version.json"}, "--plan version.json: schema_version = 99"},
      {{"check", "--plan", "version.json", "--m", "5"}, "--m = (given)"},
      {{"check", "--plan", "version.json", "--strategy", "copy"}, "--strategy = (given)"},
      {{"check", "gemm_all_reduce", "--plan", "version.json"}, "OPERATION = (given)"},
      {{"timeline", "--plan", "version.json"}, "--svg, --trace = (missing)"},
      {{"timeline", "--plan", "version.json", "--svg", "a.svg"}, "--plan version.json: schema_version = 99"},
  };

  // A good command line after which one option goes wrong.
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong_values{
      {"--m",
       {"0",
        "-1",
        "abc",
        "12abc",
        "1.5",
        "1e3",
        "",
        " 5",
        "5 ",
        "+5",
        "0x10",
        "nan",
        "inf",
        "2147483648",
        "9223372036854775808",
        "99999999999999999999999",
        "1,000",
        "\x01",
        "\xff\xfe",
        "--n"}},
      {"--n", {"0", "-7", "NaN", "18446744073709551617"}},
      {"--k", {"0", "-7", "seven", "4294967296"}},
      {"--ranks", {"0", "65", "-2", "two", "1000000000000"}},
      {"--dtype", {"fp8", "BF16", "", "bf16,fp16"}},
      {"--strategy", {"fast", "Signal", "", "0"}},
      {"--layout", {"row", "", "naturaltiled"}},
      {"--gather", {"c", "A", ""}},
      {"--exchange", {"columns", ""}},
      {"--tile",
       {"64", "x", "64x", "x64", "0x64", "64x0", "-1x64", "64x64x64", "64*64", "5000x64", "64x99999999999",
        ""}},
      {"--cluster", {"0", "3", "-1", "two"}},
      {"--multiprocessors", {"0", "-1", "5000", "many", ""}},
      {"--comm-multiprocessors", {"-1", "5000", "few"}},
      {"--first-multiprocessors", {"0", "5000", "few"}},
      {"--raster", {"0", "-1", "1048577", "x"}},
      {"--waves-per-group", {"0", "-1", "1048577", "0.5"}},
      {"--groups", {"", ",", "1,", ",1", "1,,2", "0", "1,0", "-1", "1;2", "[1,2]", "99999999999", "1, 2"}},
      {"--rounds", {"0", "-1", "1025", "x"}},
      {"--destinations",
       {"absent.json", ".", "nonsense.json", "empty.json", "far_ranks.json", "floats.json", ""}},
      {"--random-destinations", {"-1", "x", "99999999999999999999", ""}},
      {"--machine",
       {"h100", "", ".", "absent.json", "nonsense.json", "machine.json", "H200-NVLINK", "loop", "/dev/zero",
        "sparse.json", std::string(5'000, 'x')}},
      {"--save", {"", ".", "/absent/plans.json", "loop", "nonsense.json/plans.json"}},
  };
  for (const auto& [option, values] : wrong_values) {
    std::vector<std::string> good{"plan", "gemm_all_reduce"};
    for (const std::string size : {"--m", "--n", "--k", "--ranks"}) {
      if (size != option) good.insert(good.end(), {size, "64"});
    }
    for (const std::string& value : values) {
      auto arguments = good;
      arguments.insert(arguments.end(), {option, value});
      cases.emplace_back(arguments, option);
    }
    good.push_back(option);
    cases.emplace_back(good, option + " = (missing)");
  }

  // Shapes and schedules that cannot be planned, and options that do not go together.
  const std::vector<std::pair<std::string, std::string>> lines{
      {"plan gemm_reduce_scatter --m 7 --n 8 --k 9 --ranks 2", "--m = 7"},
      {"plan all_gather_gemm --m 7 --n 8 --k 9 --ranks 2", "--m = 7"},
      {"plan all_gather_gemm --m 8 --n 7 --k 9 --ranks 2 --gather b", "--n = 7"},
      {"plan gemm_all_to_all --m 7 --n 8 --k 9 --ranks 2", "--m = 7"},
      {"plan gemm_all_to_all --m 8 --n 7 --k 9 --ranks 2 --exchange heads", "--n = 7"},
      {"plan all_to_all_gemm --m 8 --n 8 --k 9 --ranks 2 --exchange heads", "--k = 9"},
      {"plan gemm_all_reduce --m 2147483647 --n 8 --k 9 --ranks 2", "--m = 2147483647"},
      {"plan gemm_all_reduce --m 2147483647 --n 1 --k 1 --ranks 1 --tile 4096x1", "--m = 2147483647"},
      {"plan gemm_all_reduce --m 8 --n 2147483647 --k 9 --ranks 64", "--n = 2147483647"},
      {"plan gemm_all_reduce --m 100000 --n 100000 --k 8 --ranks 2 --tile 1x1", "--tile = 1x1"},
      {"plan gemm_all_reduce --m 8192 --n 8192 --k 8 --ranks 64 --multiprocessors 1 --tile 64x64",
       "--waves-per-group = 1"},
      {"plan gemm_reduce_scatter --m 1048576 --n 8 --k 8 --ranks 64 --strategy copy --rounds 17",
       "--rounds = 17"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --groups 1,2", "--groups = 1,2"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --groups 1 --waves-per-group 1",
       "--waves-per-group = (given): cannot be combined with --groups"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --search --waves-per-group 1",
       "--waves-per-group = (given): cannot be combined with --search"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy store --shots 1 --waves-per-group 1",
       "--waves-per-group = (given): cannot be combined with --shots"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --gather b", "--gather = (given): is for"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --exchange heads", "--exchange = (given): is for"},
      {"timeline gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --svg same --trace same", "--trace = same"},
      {"timeline gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --svg same --trace ./same",
       "--trace = ./same: must be another file than --svg"},
      {"timeline --plan two_lists.json --svg two_lists.json",
       "--svg = two_lists.json: must be another file than --plan"},
      {"plan " + small + " --save same --save-machine same",
       "--save-machine = same: must be another file than --save"},
      {"plan " + small + " --machine machine.json --save machine.json",
       "--save = machine.json: must be another file than --machine"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy sequential --waves-per-group 2",
       "--waves-per-group = (given): is not for strategy sequential"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --multiprocessors 133",
       "--multiprocessors = 133: must be at most 132, those of h200-nvlink"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --first-multiprocessors 133",
       "--first-multiprocessors = 133: must be at most 132, those of h200-nvlink"},
      {"plan gemm_all_reduce --m 4194304 --n 1024 --k 8 --ranks 1 --layout tiled --tile 1024x1",
       "--tile = 1024x1: lays 4294967296 rows"},
      {"plan gemm_all_reduce --m 512 --n 384 --k 64 --ranks 3 --tile 64x64 --strategy copy "
       "--multiprocessors 6 --groups 1,1",
       "--groups = 1,1: must add up to 3 waves, those of one slice"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --rounds 2", "--rounds = 2"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --cluster 2 --multiprocessors 1",
       "--multiprocessors = 1"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --layout tiled --strategy copy",
       "--layout = tiled"},
      {"plan all_gather_gemm --m 64 --n 64 --k 8 --ranks 2 --layout tiled", "--layout = tiled"},
      {"plan gemm_all_to_all --m 65537 --n 64 --k 64 --ranks 64 --random-destinations 2",
       "--random-destinations = 2: is limited to m = 65536 on 64 ranks"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --random-destinations 1",
       "--random-destinations = (given): is for"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --destinations two_lists.json", "--destinations"},
      {"plan gemm_all_to_all --m 2 --n 64 --k 8 --ranks 3 --destinations two_lists.json",
       "--destinations two_lists.json: destinations = 2 lists: must have one list for each"},
      {"plan gemm_all_to_all --m 2 --n 64 --k 8 --ranks 2 --destinations far_ranks.json",
       "--destinations far_ranks.json: destinations[0][1] = 64: must be an integer"},
      {"plan gemm_all_to_all --m 2 --n 64 --k 8 --ranks 1 --destinations near_ranks.json",
       "--destinations near_ranks.json: destinations[0][1] = 9: must be a rank between 0 and 0"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy copy --first-multiprocessors 20",
       "--first-multiprocessors = (given): is for --strategy signal"},
      {"plan all_gather_gemm --m 64 --n 64 --k 8 --ranks 2 --first-multiprocessors 200",
       "--first-multiprocessors = (given): is for --strategy signal"},
      {"plan gemm_all_to_all --m 2 --n 64 --k 8 --ranks 2 --destinations two_lists.json "
       "--expert-rows two_lists.json",
       "--destinations = two_lists.json: cannot be combined with --expert-rows"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --expert-rows no_lists.json",
       "--expert-rows = no_lists.json: must have a list for each rank"},
      {"plan gemm_all_reduce --m 262144 --n 262144 --k 64 --ranks 64", "--tile = 128x256"},
      {"plan gemm_all_reduce --m 262144 --n 262144 --k 64 --ranks 64 --strategy best",
       "--m, --n = 262144, 262144: make 2097152 tiles of 128x256 on each of 64 ranks"},
      {"plan all_to_all_gemm --m 6 --n 64 --k 8 --ranks 2 --expert-rows experts.json --experts 2 --capacity "
       "4",
       "--expert-rows experts.json: rows that rank 0 receives = 6: must be at most capacity = 4"},
      {"plan all_to_all_gemm --m 6 --n 64 --k 8 --ranks 2 --random-destinations 1 --experts 2 --capacity 1",
       "--random-destinations 1: rows that rank 0 receives = "},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --experts 2",
       "--experts = (given): is for all-to"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --expert-rows experts.json",
       "--expert-rows = (given): is for all-to-alls by rows, and for all_gather_gemm of rows of A"},
      {"plan all_gather_gemm --m 64 --n 64 --k 8 --ranks 2 --gather b --experts 2 --random-destinations 1",
       "--experts = (given): is for all-to-alls by rows"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --exchange heads --random-destinations 1",
       "--random-destinations = (given): is for all-to-alls by rows"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --exchange heads --destinations two_lists.json",
       "--destinations = (given): is for"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --capacity 1",
       "--capacity = (given): needs --expert-rows or --random-destinations"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --exchange heads --capacity 1",
       "--capacity = (given): is for gemm_all_to_all and all_to_all_gemm, by rows"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --shots 1",
       "--shots = 1: must not be given here; only gemm_all_reduce"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --first-multiprocessors 132 --share-k",
       "--first-multiprocessors = 132: must not be given where workers share k"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --tile 128xlarge",
       "--tile = 128xlarge: must be ROWSxCOLS of at most 4096 each"},
      {"plan all_gather_gemm --m 64 --n 64 --k 8 --ranks 2 --strategy best --layout tiled",
       "--layout = tiled: the search finds no schedule of all_gather_gemm on h200-nvlink"},
      {"plan gemm_all_to_all --m 64 --n 64 --k 8 --ranks 2 --strategy best --layout partial",
       "--layout = partial: the search finds no schedule of gemm_all_to_all on h200-nvlink"},
      {"plan gemm_all_to_all --m 2 --n 64 --k 8 --ranks 2 --destinations two_lists.json "
       "--random-destinations 1",
       "--random-destinations = 1"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --machine rtx4090 --strategy copy",
       "--machine = rtx4090"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --search --strategy copy",
       "--search = (given): only the groups of --strategy signal"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy beste",
       "--strategy = beste: must be best or one of sequential, signal, copy, store, p2p"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy best --tile 64x64",
       "--tile = (given): cannot be combined with --strategy best"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy best --comm-multiprocessors 132",
       "--comm-multiprocessors = 132: must be at least 1 and less than 132"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --strategy signal --comm-multiprocessors 132",
       "--comm-multiprocessors = 132: must be less than 132, those of h200-nvlink"},
      {"bench gemm_all_reduce --gpus 2 --random 3 --m 100",
       "--m = (given): cannot be combined with --random"},
      {"bench gemm_all_reduce --gpus 2 --random 3 --m 1024,2048,4096,8192,16384", "--m = (given)"},
      {"bench gemm_all_reduce --gpus 2 --rms-norm --timeline x.svg",
       "--timeline = x.svg: cannot be combined with --rms-norm"},
      {"bench gemm_all_reduce --gpus 2 --random 3 --k 4096",
       "--random = 3: cannot be combined with --n, --k"},
      {"bench gemm_all_reduce --gpus 2 --seed 5", "--seed = 5: is for --random"},
      {"bench gemm_all_reduce --gpus 2 --seed 0", "--seed = 0: is for --random"},
      {"check --gpus 2 --strategy best", "--strategy = best: cannot be combined with --gpus"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --search --groups 1", "--search = (given)"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --m 64", "--m = (several)"},
      {"plan gemm_all_reduce gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2", "ARGUMENT = gemm_all_reduce"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8 --ranks 2 --plan plans.json", "ARGUMENT = "},
      {"plan gemm_all_reduce --n 64 --k 8 --ranks 2", "--m = (missing)"},
      {"plan gemm_all_reduce --m 64 --k 8 --ranks 2", "--n = (missing)"},
      {"plan gemm_all_reduce --m 64 --n 64 --ranks 2", "--k = (missing)"},
      {"plan gemm_all_reduce --m 64 --n 64 --k 8", "--ranks = (missing)"},
      {"check " + small + " --runs 0", "--runs = 0"},
      {"check " + small + " --runs many", "--runs = many"},
      {"check " + small + " --delays -1", "--delays = -1"},
      {"check " + small + " --delays 1e9", "--delays = 1e9"},
      {"check " + small + " --seed -1", "--seed = -1"},
      {"check " + small + " --workers 0", "--workers = 0"},
      {"check " + small + " --workers 257", "--workers = 257"},
      {"check " + small + " --wait-limit 0", "--wait-limit = 0: must be an integer between 1 and 3600"},
      {"check " + small + " --svg a.svg", "ARGUMENT = --svg"},
      {"check gemm_all_reduce --m 1000000 --n 1000000 --k 100000 --ranks 2 --tile 4096x4096",
       "--m, --n, --k = "},
      {"timeline " + small, "--svg, --trace = (missing)"},
      {"timeline " + small + " --svg .", "--svg = .: must be a file"},
      {"timeline " + small + " --svg /absent/a.svg", "--svg = /absent/a.svg: cannot be created"},
      {"timeline " + small + " --trace /absent/a.json", "--trace = /absent/a.json: cannot be created"},
      {"timeline " + small + " --trace", "--trace = (missing)"},
  };
  for (const auto& [line, start] : lines) cases.emplace_back(words_of(line), start);

  std::set<std::vector<std::string>> distinct;
  for (const auto& [arguments, start] : cases) {
    distinct.insert(arguments);
    expect_refused(arguments, start);
  }
  EXPECT_EQ(distinct.size(), cases.size());
  EXPECT_GE(distinct.size(), 200u);
}

TEST_F(Cli, NoLineIsLong) {
  std::string groups = "1";
  for (int group = 1; group < 20'000; ++group) groups += ",1";
  const std::vector<std::string> problem = words_of("plan gemm_all_reduce --m 20000 --n 20 --k 8 --ranks 1");
  const auto with = [&](const std::string& options) {
    std::vector<std::string> line = problem;
    for (const std::string& word : words_of(options)) line.push_back(word);
    return line;
  };
  expect_refused(with("--groups " + groups), "--groups = 1,1,1,");
  expect_refused(with("--groups " + groups + ",x"), "--groups = x");
  expect_refused(with("--json=" + std::string(1'000, 'x')), "ARGUMENT = (not understood)");
  // Every part is long: the file's name, the place in it and the value.
  std::string folders(101, '/');
  folders.front() = 'a';
  folders.back() = 'b';
  fs::create_directories(path("a/b"));
  const json machine = {{std::string(3'000, 'k'), std::string(3'000, 'v')}};
  write("a/b/machine.json", machine.dump());
  expect_refused(with("--machine " + folders + "/machine.json"), "--machine a//");

  const Outcome plan = run(with("--tile 1x20 --multiprocessors 1 --groups " + groups));
  EXPECT_EQ(plan.status, 0) << plan.err;
  json named =
      json::parse(run(with("--save-machine m.json --json")).status == 0 ? content(path("m.json")) : "");
  named["name"] = std::string(4'000, 'n');
  write("m.json", named.dump());
  const Outcome named_plan = run(with("--machine m.json"));
  EXPECT_EQ(named_plan.status, 0) << named_plan.err;
  EXPECT_THAT(named_plan.out, testing::HasSubstr("\npredicted "));
  for (const std::string& text : {plan.out, named_plan.out}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 300u) << line;
  }
}

TEST_F(Cli, AFieldThatNoOptionSetsKeepsItsName) {
  expect_refused(words_of("bench all_to_all_gemm --gpus 2 --m 64 --n 1048576 --k 64 --experts 1024"),
                 "n x experts = 1073741824: must be between 1 and");
}

TEST_F(Cli, PlansThatDoNotFitIntoMemoryAreRefusedByTheirFile) {
  ASSERT_EQ(run("plan " + small + " --strategy store --save plans.json").status, 0);
  json document = json::parse(content(path("plans.json")));
  for (json& plan : document["plans"]) plan["buffers"]["inbox"]["rows"] = 2'000'000'000;
  write("plans.json", document.dump());
  expect_refused({"check", "--plan", "plans.json"}, "--plan plans.json: matrices = ");
}

/// A saved document with one number out of place, through the command.
TEST_F(Cli, DamagedPlansAreRefusedByPath) {
  ASSERT_EQ(run("plan " + small + " --save plans.json").status, 0);
  const json document = json::parse(content(path("plans.json")));
  for (const std::string place : {"/problem/m", "/schedule/raster", "/plans/1/rank", "/plans/1/tiles/2/row",
                                  "/plans/0/messages/0/waits/0/counter", "/plans/0/output/rows"}) {
    json damaged = document;
    damaged[json::json_pointer(place)] = "seven";
    write("damaged.json", damaged.dump());
    expect_refused({"check", "--plan", "damaged.json"}, "--plan damaged.json: ");
  }
}

}  // namespace
}  // namespace flashoverlap
