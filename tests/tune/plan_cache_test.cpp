#include "flashoverlap/plan_cache.hpp"

#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "flashoverlap/error.hpp"
#include "support/cache_folder.hpp"
#include "tune/cache_files.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using flashoverlap::testing::CacheFolder;
using flashoverlap::testing::site_of;
using flashoverlap::testing::small_plan;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

namespace fs = std::filesystem;

using PlanCacheTest = CacheFolder;

TEST_F(PlanCacheTest, RandomPlansComeBackAsTheyWere) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  fmt::print("seed {}\n", seed);
  testing::RandomCases cases(seed);
  std::mt19937_64 random(seed);
  std::map<fs::path, TunedPlan> stored;
  for (int i = 0; i < 400; ++i) {
    const testing::Case drawn = cases.next();
    std::uniform_real_distribution<double> time(1e-3, 1e7);
    const TunedPlan plan{.problem = drawn.problem,
                         .reader = i % 3 == 0 ? Reader::norm : Reader::caller,
                         .schedule = drawn.schedule,
                         .tuned_us = time(random),
                         .sequential_us = time(random),
                         .predicted_us = i % 7 == 0 ? 0 : time(random),
                         .date = fmt::format("day {} \"\\", i)};
    cache(plan.problem.ranks).store(plan);
    stored[file(plan)] = plan;
  }
  for (const auto& [path, plan] : stored) {
    EXPECT_EQ(cache(plan.problem.ranks).find(plan.problem, plan.reader), plan) << path;
    TunedPlan other = plan;
    other.problem.k += other.problem.ranks;
    EXPECT_TRUE(stored.contains(file(other)) ||
                !cache(other.problem.ranks).find(other.problem, other.reader));
  }
  std::size_t of_sites = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const TunedPlan& plan : cache(ranks).entries()) {
      EXPECT_EQ(plan, stored.at(file(plan)));
      ++of_sites;
    }
  }
  EXPECT_EQ(of_sites, stored.size());
  const auto all = cached_plans(directory_.string());
  ASSERT_EQ(all.size(), stored.size());
  for (const CachedPlan& entry : all) {
    EXPECT_EQ(entry.plan, stored.at(file(entry.plan)));
    EXPECT_EQ(entry.site, site_of(entry.plan.problem.ranks));
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PlanCacheTest, TheLastPlanStaysAndHasADate) {
  TunedPlan plan = small_plan(0, 20);
  cache().store(plan);
  plan.tuned_us = 19;
  plan.date.clear();
  cache().store(plan);
  const auto found = cache().find(plan.problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tuned_us, 19);
  EXPECT_THAT(found->date, ::testing::MatchesRegex("20..-..-.. ..:.. UTC"));
  EXPECT_THAT(names_in(folder()), SizeIs(1));
}

TEST_F(PlanCacheTest, KeepsAPlanForEachReader) {
  TunedPlan plan = small_plan(0, 20);
  cache().store(plan);
  EXPECT_FALSE(cache().find(plan.problem, Reader::norm));
  plan.reader = Reader::norm;
  plan.tuned_us = 23;
  cache().store(plan);
  EXPECT_EQ(cache().find(plan.problem)->tuned_us, 20);
  EXPECT_EQ(cache().find(plan.problem, Reader::norm), plan);
}

TEST_F(PlanCacheTest, WithConcurrentCollectivesHasPlansOfItsOwnAndTheSameMachine) {
  TuningSite site = site_of(2);
  site.concurrent_collectives = true;
  const PlanCache concurrent(directory_.string(), site);
  const TunedPlan plan = small_plan(0);
  concurrent.store(plan);
  EXPECT_EQ(concurrent.find(plan.problem), plan);
  EXPECT_FALSE(cache().find(plan.problem));
  const std::vector<CachedPlan> all = cached_plans(directory_.string());
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].site, site);
  const Machine machine = preset("h200-nvlink");
  concurrent.store_machine(machine);
  EXPECT_EQ(cache().machine(), machine);
  EXPECT_EQ(concurrent.machine(), machine);
}

TEST_F(PlanCacheTest, NamesAreReadableAndDifferInEveryField) {
  const TuningSite site = site_of(2);
  EXPECT_THAT(folder_name(site), StartsWith("NVIDIA_H200-2_ranks-nvlink-driver_580.95.05-nccl_2.28.3-"));
  std::set<std::string> folders{folder_name(site)};
  const auto add_site = [&](const auto& change) {
    TuningSite other = site;
    change(other);
    EXPECT_TRUE(folders.insert(folder_name(other)).second) << folder_name(other);
  };
  add_site([](TuningSite& other) { other.gpu = "NVIDIA_H200"; });  // the same letters in a file name
  add_site([](TuningSite& other) { other.gpu += std::string(50, 'x'); });
  add_site([](TuningSite& other) { other.gpu += std::string(51, 'x'); });
  add_site([](TuningSite& other) { other.gpu = "../../NVIDIA H200"; });
  add_site([](TuningSite& other) { other.compute_capability = 91; });
  add_site([](TuningSite& other) { other.multiprocessors = 114; });
  add_site([](TuningSite& other) { other.driver = "580.95.06"; });
  add_site([](TuningSite& other) { other.nccl = "2.28.4"; });
  add_site([](TuningSite& other) { other.library = "1.2.4"; });
  add_site([](TuningSite& other) { other.ranks = 3; });
  add_site([](TuningSite& other) { other.hosts = 2; });
  add_site([](TuningSite& other) { other.fabric = "pcie_like"; });
  add_site([](TuningSite& other) { other.concurrent_collectives = true; });
  for (const std::string& name : folders) EXPECT_EQ(name.find('/'), name.npos) << name;

  const Problem problem{.operation = Operation::all_to_all_gemm, .m = 8, .n = 6, .k = 4, .ranks = 2};
  EXPECT_THAT(entry_name({.problem = problem}), StartsWith("all_to_all_gemm-rows-m8-n6-k4-2_ranks-bf16-"));
  std::set<std::string> files{entry_name({.problem = problem})};
  std::set<std::string> ids{std::string(hash_of_entry(*files.begin()))};
  const auto add = [&](const TunedPlan& plan) {
    EXPECT_TRUE(files.insert(entry_name(plan)).second) << entry_name(plan);
    EXPECT_TRUE(ids.emplace(hash_of_entry(entry_name(plan))).second) << entry_name(plan);
  };
  add({.problem = problem, .reader = Reader::norm});
  const auto add_problem = [&](const auto& change) {
    TunedPlan other{.problem = problem};
    change(other.problem);
    add(other);
  };
  add_problem([](Problem& other) { other.operation = Operation::gemm_all_to_all; });
  add_problem([](Problem& other) { other.m = 10; });
  add_problem([](Problem& other) { other.n = 10; });
  add_problem([](Problem& other) { other.k = 10; });
  add_problem([](Problem& other) { other.ranks = 1; });
  add_problem([](Problem& other) { other.data_type = DataType::fp16; });
  add_problem([](Problem& other) { other.gathered = Operand::b; });
  add_problem([](Problem& other) { other.exchange = Exchange::heads; });
  add_problem([](Problem& other) { other.a_layout = OperandLayout::row_contiguous; });
  add_problem([](Problem& other) { other.b_layout = OperandLayout::row_contiguous; });
  add_problem([](Problem& other) { other.destinations = {{0, 1}, {1, 1}}; });
  add_problem([](Problem& other) { other.destinations = {{0, 1, 1}, {1}}; });
  add_problem([](Problem& other) { other.experts = 2; });
  add_problem([](Problem& other) { other.expert_rows = {{4, 4}, {4, 4}}; });
  add_problem([](Problem& other) { other.capacity = 8; });
}

TEST_F(PlanCacheTest, WhatIsNotValidIsNotStored) {
  const auto refused = [&](const auto& change, const std::string& start) {
    TunedPlan plan = small_plan(0);
    change(plan);
    EXPECT_THAT([&] { cache().store(plan); }, ThrowsMessage<InvalidArgument>(StartsWith(start)));
  };
  refused([](TunedPlan& plan) { plan.problem.m = 0; }, "m = 0");
  refused([](TunedPlan& plan) { plan.problem.ranks = 4; }, "ranks = 4: must be 2, those of the site");
  refused([](TunedPlan& plan) { plan.schedule.tile_rows = 0; }, "tile_rows = 0");
  refused([](TunedPlan& plan) { plan.schedule.groups = {1, 1}; }, "groups = ");
  refused([](TunedPlan& plan) { plan.tuned_us = 0; }, "tuned_us = 0");
  refused([](TunedPlan& plan) { plan.sequential_us = std::numeric_limits<double>::quiet_NaN(); },
          "sequential_us = nan");
  refused([](TunedPlan& plan) { plan.predicted_us = -1; }, "predicted_us = -1");
  refused([](TunedPlan& plan) { plan.date = "\x1b[2J"; }, "date = ");
  EXPECT_FALSE(fs::exists(folder()));
  TuningSite site = site_of(2);
  site.gpu = "";
  EXPECT_THAT([&] { PlanCache(directory_.string(), site); },
              ThrowsMessage<InvalidArgument>(StartsWith("gpu = \"\"")));
}

/// Sets aside what `change` makes of an entry's text, says so once, and stores anew.
class SetAside : public CacheFolder {
 protected:
  void expect(const std::string& text, const std::string& suffix, const std::string& reason) {
    const TunedPlan plan = small_plan(0);
    const fs::path path = file(plan);
    fs::create_directories(folder());
    write(path, text);
    warnings_.clear();
    EXPECT_EQ(cache().find(plan.problem), std::nullopt) << text;
    EXPECT_EQ(cache().find(plan.problem), std::nullopt) << text;
    ASSERT_THAT(warnings_, SizeIs(1)) << text;
    EXPECT_THAT(warnings_.front(), AllOf(HasSubstr(entry_name(plan)), HasSubstr(suffix), HasSubstr(reason)));
    EXPECT_EQ(warnings_.front().find('\n'), std::string::npos) << warnings_.front();
    EXPECT_THAT(names_in(folder()), ElementsAre(path.filename(), path.filename().string() + suffix)) << text;
    EXPECT_EQ(text_of(path), text);
    EXPECT_EQ(text_of(path.string() + suffix), text);
    cache().store(plan);
    EXPECT_EQ(cache().find(plan.problem), plan);
    EXPECT_THAT(warnings_, SizeIs(1));
    fs::remove(path.string() + suffix);
  }

  std::string good() {
    cache().store(small_plan(0));
    return text_of(file(small_plan(0)));
  }

  /// The good text with the first `from` replaced.
  std::string with(const std::string& from, const std::string& to) {
    std::string text = good();
    const std::size_t place = text.find(from);
    EXPECT_NE(place, text.npos) << from;
    return text.replace(place, from.size(), to);
  }
};

TEST_F(SetAside, DamagedEntries) {
  const std::string whole = good();
  for (std::size_t size = 0; size + 1 < whole.size(); size += 7)  // without its last newline it is whole
    expect(whole.substr(0, size), ".damaged", "is not JSON");
  expect(whole + "}", ".damaged", "is not JSON");
  expect(std::string(whole.size(), '\0'), ".damaged", "null byte");
  expect(with("\"m\":64", "\"m\":\"64\""), ".damaged", "problem.m = \"64\": must be an integer");
  expect(with("\"n\":64", "\"n\":64,\"extra\":1"), ".damaged", "extra = 1: is not a known key");
  expect(with("\"date\":", "\"day\":"), ".damaged", "date = (missing)");
  expect(with("\"schema_version\":2,", ""), ".damaged", "schema_version = (missing)");
  expect(with("\"tuned_us\":10", "\"tuned_us\":-10"), ".damaged", "tuned_us = -10");
  expect(with("\"tile_rows\":16", "\"tile_rows\":0"), ".damaged", "schedule.tile_rows = 0");
  // What only the planner refuses.
  expect(with("\"groups\":[]", "\"groups\":[1,1,1]"), ".damaged", "groups = ");
  expect(with("\"strategy\":\"signal\",\n  \"layout\":\"natural\"",
              "\"strategy\":\"copy\",\n  \"layout\":\"tiled\""),
         ".damaged", "layout = tiled");
}

TEST_F(SetAside, SchedulesThatWouldFillTheMemory) {
  const TunedPlan plan{.problem = {.m = 1 << 20, .n = 1 << 20, .k = 8, .ranks = 2},
                       .schedule = {.tile_rows = 4096, .tile_cols = 4096, .step_depth = 8},
                       .tuned_us = 1,
                       .sequential_us = 1,
                       .date = "today"};
  cache().store(plan);
  std::string text = text_of(file(plan));
  text.replace(text.find("\"tile_rows\":4096"), 16, "\"tile_rows\":1");
  write(file(plan), text);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(cache().find(plan.problem), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("268435456 tiles, and at most 4194304 are planned")));
}

TEST_F(SetAside, OutdatedEntries) {
  expect(with("\"schema_version\":2", "\"schema_version\":1"), ".outdated", "schema_version = 1: must be 2");
  expect(with("\"schema_version\":2", "\"schema_version\":3"), ".outdated", "schema_version = 3: must be 2");
  expect("{\"schema_version\":3,\"what\":\"nobody knows\"}", ".outdated", "schema_version = 3");
}

TEST_F(SetAside, ForeignEntries) {
  cache().store(small_plan(1));
  const std::string other_problem = text_of(file(small_plan(1)));
  fs::remove(file(small_plan(1)));
  expect(other_problem, ".damaged", "name of the file = gemm_all_reduce-m64-");
  expect(with("NVIDIA H200", "NVIDIA H100"), ".damaged", "name of the folder = NVIDIA_H200-");
  expect(with("\"ranks\":2,\n  \"hosts\"", "\"ranks\":4,\n  \"hosts\""), ".damaged",
         "ranks = 2: must be 4, those of the site");
}

TEST_F(SetAside, ListsLeaveThemOutAndWarnOnce) {
  for (int number = 0; number < 3; ++number) cache().store(small_plan(number));
  write(file(small_plan(1)), "{");
  EXPECT_THAT(cache().entries(), ElementsAre(small_plan(0), small_plan(2)));
  EXPECT_THAT(cached_plans(directory_.string()), SizeIs(2));
  EXPECT_THAT(warnings_, SizeIs(1));
}

/// Between the reading of a damaged entry and its setting aside another process stores a good one.
TEST_F(SetAside, NeverWhatWasStoredMeanwhile) {
  cache().store(small_plan(0));
  EXPECT_TRUE(set_aside(file(small_plan(0)), damaged_suffix, "{"));
  EXPECT_FALSE(set_aside(file(small_plan(0)), damaged_suffix, "{"));
  EXPECT_EQ(cache().find(small_plan(0).problem), small_plan(0));
  EXPECT_EQ(text_of(file(small_plan(0)).string() + ".damaged"), "{");
}

TEST_F(PlanCacheTest, ListsAreByOperationAndThenByNumber) {
  TunedPlan other = small_plan(0);
  other.problem.operation = Operation::all_gather_gemm;  // comes last, and first by its name
  const TunedPlan large = small_plan(1000 - 64);         // its m comes before 64 by name
  TunedPlan wide = small_plan(0);
  wide.problem.n = 1000;
  TunedPlan deep = small_plan(0);
  deep.problem.k = 1000;
  for (const TunedPlan& plan : {other, large, wide, deep, small_plan(0)}) cache().store(plan);
  EXPECT_THAT(cache().entries(), ElementsAre(small_plan(0), deep, wide, large, other));
}

TEST_F(PlanCacheTest, WhatIsNoFileIsNoEntry) {
  const TunedPlan plan = small_plan(0);
  fs::create_directories(file(plan));
  EXPECT_EQ(cache().find(plan.problem), std::nullopt);
  EXPECT_THAT(cache().entries(), IsEmpty());
  EXPECT_THROW(cache().store(plan), Error);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PlanCacheTest, KeepsWhatWasMeasuredOfItsSiteOnly) {
  EXPECT_FALSE(cache().machine());
  Machine measured = preset("h100-nvlink");
  cache().store_machine(measured);
  measured.name = "measured again";
  cache().store_machine(measured);
  EXPECT_EQ(cache().machine(), measured);
  EXPECT_FALSE(cache(4).machine());
  EXPECT_THAT(names_in(folder()), ElementsAre("machine.json"));

  write(cache().machine_file(), "{");
  EXPECT_THROW(cache().machine(), InvalidArgument);
}

TEST_F(PlanCacheTest, ClearRemovesItsFilesOnly) {
  EXPECT_EQ(cache().clear(), 0u);
  for (int number = 0; number < 5; ++number) cache().store(small_plan(number));
  write(file(small_plan(4)), "{");
  EXPECT_THAT(cache().entries(), SizeIs(4));
  write(folder() / ".flashoverlap-77-0", "half an en");
  write(cache().machine_file(), "machine");
  write(folder() / "notes.json", "mine");
  TunedPlan elsewhere = small_plan(0);
  elsewhere.problem.ranks = 4;
  cache(4).store(elsewhere);

  EXPECT_EQ(cache().clear(), 5u);
  EXPECT_THAT(names_in(folder()), ElementsAre("machine.json", "notes.json"));
  EXPECT_THAT(cache(4).entries(), ElementsAre(elsewhere));
  EXPECT_EQ(cache(4).clear(), 1u);
  EXPECT_FALSE(fs::exists(folder(4)));
}

TEST_F(PlanCacheTest, StoringRemovesOldLeftovers) {
  cache().store(small_plan(0));
  for (const auto& [name, age] :
       {std::pair{".flashoverlap-1-0", 2h}, {".flashoverlap-2-0", 0h}, {"notes", 2h}}) {
    write(folder() / name, "half an en");
    fs::last_write_time(folder() / name, fs::file_time_type::clock::now() - age);
  }
  cache().store(small_plan(1));
  EXPECT_THAT(names_in(folder()), ElementsAre(".flashoverlap-2-0", file(small_plan(0)).filename(),
                                              file(small_plan(1)).filename(), "notes"));
}

TEST_F(PlanCacheTest, TheFolderIsTheWantedOneElseTheFirstThatIsNamed) {
  const auto set = [](const char* own, const char* caches, const char* home) {
    for (const auto& [name, value] :
         {std::pair{"FLASHOVERLAP_CACHE_DIR", own}, {"XDG_CACHE_HOME", caches}, {"HOME", home}}) {
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    }
  };
  set("here", "/caches", "/home/me");
  EXPECT_EQ(cache_directory(), "here");
  set("", "/caches", "/home/me");
  EXPECT_EQ(cache_directory(), "/caches/flashoverlap");
  set(nullptr, "relative", "/home/me");
  EXPECT_EQ(cache_directory(), "/home/me/.cache/flashoverlap");
  set(nullptr, nullptr, nullptr);
  EXPECT_EQ(cache_directory("wanted"), "wanted");
  EXPECT_THAT([] { cache_directory(); },
              ThrowsMessage<InvalidArgument>(StartsWith("FLASHOVERLAP_CACHE_DIR = (not set)")));
}

}  // namespace
}  // namespace flashoverlap
