// `flashoverlap tune` on caches that the library has written.
#include <linux/capability.h>
#include <sys/prctl.h>

#include <nlohmann/json.hpp>

#include "cli/cli_runs.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "support/cache_folder.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::site_of;
using ::testing::SizeIs;
using testing::small_plan;
using ::testing::StartsWith;

class Tune : public Cli {
 protected:
  /// Two plans for 2 ranks, one for 4.
  void fill(const std::string& directory) const {
    for (int number = 0; number < 2; ++number)
      PlanCache(path(directory), site_of(2)).store(small_plan(number, 10 + number));
    TunedPlan plan = small_plan(0);
    plan.problem.ranks = 4;
    PlanCache(path(directory), site_of(4)).store(plan);
  }

  std::string entry_file(const std::string& directory) const {
    const fs::path folder = path(directory);
    return folder / folder_name(site_of(2)) / entry_name(small_plan(0));
  }

  void expect_prints(const std::string& line, const std::string& printed) const {
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.status, 0) << line << outcome.err;
    EXPECT_EQ(outcome.out, printed) << line;
    EXPECT_EQ(outcome.err, "") << line;
  }
};

TEST_F(Tune, ListNamesEveryPlan) {
  fill("cache");
  const Outcome listed = run("tune --list --cache cache");
  EXPECT_EQ(listed.status, 0);
  EXPECT_EQ(std::ranges::count(listed.out, '\n'), 4);
  EXPECT_THAT(listed.out, StartsWith("site "));
  EXPECT_THAT(listed.out, HasSubstr(folder_name(site_of(2)) +
                                    "  gemm_all_reduce  65  64  32  bf16   caller  "
                                    "signal    16x16        1      11.0           12.5     1.136"));
  const auto rows = json::parse(run("tune --list --json --cache cache").out)["plans"];
  ASSERT_THAT(rows, SizeIs(3));
  for (const json& row : rows) {
    EXPECT_EQ(row["operation"], "gemm_all_reduce");
    EXPECT_EQ(row["strategy"], "signal");
    EXPECT_NEAR(row["speed_up"].get<double>(), 12.5 / row["tuned_us"].get<double>(), 1e-9);
    EXPECT_THAT(listed.out, HasSubstr(row["site"].get<std::string>()));
  }
  EXPECT_THAT(json::parse(run("tune --list --json --cache cache --site 4_ranks").out)["plans"], SizeIs(1));
  expect_prints("tune --list --cache absent", "no tuned plans in absent\n");
}

TEST_F(Tune, ShowPrintsTheEntryWithThisName) {
  fill("cache");
  const std::string name = entry_name(small_plan(0));
  const std::string text = content(entry_file("cache"));
  expect_prints("tune --show " + name + " --cache cache", text);
  expect_prints("tune --show m64-n64-k32-2 --cache cache", text);
  expect_prints("tune --show " + std::string(hash_of_entry(name)) + " --cache cache", text);
  expect_prints("tune --show m64 --site 2_ranks --cache cache", text);
  expect_refused({"tune", "--show", "gemm", "--cache", "cache"},
                 "--show = gemm: fits 3 entries: add --site, or give the id that --list prints");
  expect_refused({"tune", "--show", "m99", "--cache", "cache"}, "--show = m99: fits no entry; see --list");
}

TEST_F(Tune, WhatIsExportedIsImported) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  testing::RandomCases cases(seed);
  fill("cache");
  for (int i = 0; i < 40; ++i) {
    const testing::Case drawn = cases.next();
    TunedPlan plan = small_plan(0, 5 + i);
    plan.problem = drawn.problem;
    plan.schedule = drawn.schedule;
    PlanCache(path("cache"), site_of(plan.problem.ranks)).store(plan);
  }
  const auto before = cached_plans(path("cache"));
  const std::string all = fmt::format("exported {} tuned plans of {} sites\n", before.size(),
                                      std::distance(fs::directory_iterator(path("cache")), {}));
  expect_prints("tune --export all.json --cache cache", all);
  expect_prints(
      "tune --import all.json --cache other",
      fmt::format("imported {0} tuned plans: {0} new, 0 replaced, 0 unchanged; 0 refused\n", before.size()));
  EXPECT_EQ(cached_plans(path("other")), before);
  expect_prints("tune --export again.json --cache other", all);
  EXPECT_EQ(content(path("again.json")), content(path("all.json")));

  PlanCache(path("other"), site_of(2)).store(small_plan(0, 99));
  fs::remove(fs::path(path("other")) / folder_name(site_of(2)) / entry_name(small_plan(1)));
  const auto merged = run("tune --import all.json --cache other");
  EXPECT_EQ(merged.out, fmt::format("imported {} tuned plans: 1 new, 1 replaced, {} unchanged; 0 refused\n",
                                    before.size(), before.size() - 2));
  EXPECT_EQ(cached_plans(path("other")), before);
}

TEST_F(Tune, WhatIsWrongIsNotImported) {
  fill("cache");
  ASSERT_EQ(run("tune --export all.json --cache cache").status, 0);
  const std::string good = content(path("all.json"));
  json document = json::parse(good);
  document["entries"][0]["schedule"]["tile_rows"] = 0;
  document["entries"][1]["site"]["gpu"] = "\x1b[2J";
  write("some.json", document.dump());
  const Outcome outcome = run("tune --import some.json --cache some");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "imported 1 tuned plan: 1 new, 0 replaced, 0 unchanged; 2 refused\n");
  EXPECT_THAT(outcome.err,
              MatchesRegex("flashoverlap: --import some.json: entries\\[0\\].schedule.tile_rows = 0: .*\n"
                           "flashoverlap: --import some.json: entries\\[1\\].site.gpu = .*\n"));
  EXPECT_THAT(cached_plans(path("some")), SizeIs(1));

  const auto refused = [&](const std::string& text, const std::string& start) {
    write("wrong.json", text);
    expect_refused({"tune", "--import", "wrong.json", "--cache", "none"}, "--import wrong.json: " + start);
    EXPECT_FALSE(fs::exists(path("none"))) << text;
  };
  refused(good.substr(0, good.size() - 3), "plans = line");
  refused("[]", "plans = array of 0: must be an object");
  document = json::parse(good);
  document["schema_version"] = 1;
  refused(document.dump(), "schema_version = 1: must be 2");
  document = json::parse(good);
  document["extra"] = 2;
  refused(document.dump(), "extra = 2: is not a known key");
  expect_refused({"tune", "--import", "absent.json"}, "--import = absent.json: cannot be opened");
}

TEST_F(Tune, DamagedEntriesAreSaidOnce) {
  fill("cache");
  std::ofstream(entry_file("cache")) << "{";
  const Outcome first = run("tune --list --cache cache");
  EXPECT_EQ(first.status, 0);
  EXPECT_EQ(std::ranges::count(first.out, '\n'), 3);
  EXPECT_THAT(first.err,
              MatchesRegex("flashoverlap: cache entry gemm_all_reduce-m64-.*\\.json is set aside as "
                           "\\*\\.damaged: .*; in cache/.*\n"));
  EXPECT_EQ(run("tune --list --cache cache").err, "");
}

TEST_F(Tune, ClearSaysWhatItRemoved) {
  fill("cache");
  const std::string stranger = path("cache/stranger-0123456789abcdeg");
  fs::create_directory(stranger);
  std::ofstream(stranger + "/a-0123456789abcdef.json") << "{}";
  expect_prints("tune --clear --site 2_ranks --cache cache", "removed 2 tuned plans of 1 site\n");
  EXPECT_THAT(cached_plans(path("cache")), SizeIs(1));
  expect_prints("tune --clear --cache cache", "removed 1 tuned plan of 1 site\n");
  expect_prints("tune --clear --cache cache", "removed 0 tuned plans of 0 sites\n");
  EXPECT_TRUE(fs::exists(stranger + "/a-0123456789abcdef.json"));
}

TEST_F(Tune, TheUsualCacheIsThatOfTheEnvironment) {
  fill("caches/flashoverlap");
  const auto use = [&](const std::string& own) {
    return finish(start({"tune", "--list"}, "", [&] {
      setenv("XDG_CACHE_HOME", path("caches").c_str(), 1);
      own.empty() ? unsetenv("FLASHOVERLAP_CACHE_DIR") : setenv("FLASHOVERLAP_CACHE_DIR", own.c_str(), 1);
    }));
  };
  EXPECT_EQ(std::ranges::count(use("").out, '\n'), 4);
  EXPECT_EQ(use("elsewhere").out, "no tuned plans in elsewhere\n");
}

TEST_F(Tune, WrongInputIsRefused) {
  write("file", "");
  write("many_heads", R"({"hidden": 4096, "ffn": 14336, "heads": 4611686018427387904, "kv_heads": 8})");
  fill("cache");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "OPERATION, machine, --model, --list, --show, --export, --import, --clear = (missing)"},
      {"--list --clear", "--clear = (given): cannot be combined with --list"},
      {"--show a --export b", "--export = (given): cannot be combined with --show"},
      {"--clear --json", "--json = (given): is for --list"},
      {"--import file --site a", "--site = a: cannot be combined with --import"},
      {"--list --cache file", "--cache = file: cannot be read: Not a directory"},
      {"--import absent --cache file", "--import = absent"},
      {"--export absent/file --cache cache", "--export = absent/file: cannot be created"},
      {"--show", "--show = (missing)"},
      {"--list --wrong", "ARGUMENT = --wrong"},
      {"--list --m 3", "--m = (given): is for OPERATION, machine and --model"},
      {"--list --gpus 4", "--gpus = (given): is for OPERATION, machine and --model"},
      {"--model llama3-8b --gpus 2 --list", "--list = (given): cannot be combined with what measures"},
      {"--model llama3-8b --gpus 2 --json", "--json = (given): cannot be combined with what measures"},
      {"--clear gemm_all_reduce --gpus 2 --m 8 --n 8 --k 8",
       "--clear = (given): cannot be combined with what measures"},
      {"--gpus 2 gemm_all_reduce --m 8 --n 8 --k 8", "--gpus = (given): must come after gemm_all_reduce"},
      {"--site a machine --gpus 2", "--site = (given): cannot be combined with what measures"},
      {"--model many_heads --gpus 2 --m 4096", "--model many_heads: heads = 4611686018427387904: must be"},
      {"gemm", "ARGUMENT = gemm"},
  };
  for (const auto& [line, start] : cases) expect_refused(words_of("tune " + line), start);
  ASSERT_EQ(run("tune --export all.json --cache cache").status, 0);
  expect_refused({"tune", "--import", "all.json", "--cache", "file"}, "--cache = file/NVIDIA");
}

/// A cache that others have filled and this user cannot write.
TEST_F(Tune, ACacheThatCannotBeWrittenIsRead) {
  fill("cache");
  std::ofstream(entry_file("cache")) << "{";
  fs::permissions(fs::path(entry_file("cache")).parent_path(), fs::perms(0555));
  const auto as_others = [] { prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); };  // root may write everywhere
  const Outcome listed = finish(start(words_of("tune --list --cache cache"), "", as_others));
  EXPECT_EQ(listed.status, 0);
  EXPECT_EQ(std::ranges::count(listed.out, '\n'), 3);
  EXPECT_THAT(listed.err, HasSubstr("is left out and cannot be set aside"));
  const Outcome cleared = finish(start(words_of("tune --clear --cache cache"), "", as_others));
  EXPECT_EQ(cleared.status, 2);
  EXPECT_THAT(cleared.err, HasSubstr("cannot be removed: Permission denied"));
  fs::permissions(fs::path(entry_file("cache")).parent_path(), fs::perms(0755));
}

}  // namespace
}  // namespace flashoverlap
