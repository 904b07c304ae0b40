// Nothing is lost while the command writes a file.
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/cli_runs.hpp"
#include "support/unnamed_files.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// Takes a while to write.
const std::string large =
    "plan gemm_all_reduce --m 8192 --n 8192 --k 64 --ranks 4 --tile 64x64 --waves-per-group 8 --save "
    "plans.json";

const std::string saving = "plan " + small + " --save plans.json";

class Saving : public Cli {
 protected:
  void expect_plans(const std::string& file) const {
    EXPECT_NO_THROW(EXPECT_EQ(json::parse(content(path(file)))["plans"].size(), 2u)) << file;
  }

  /// Whether the process has begun to write a file of the folder.
  bool is_writing(pid_t child) const {
    std::error_code ended;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(child) + "/fd", ended)) {
      const std::string file = fs::read_symlink(entry.path(), ended).string();
      const bool is_output = file == path(".out") || file == path(".err");
      struct stat state {};
      if (file.starts_with(path("")) && !is_output && stat(entry.path().c_str(), &state) == 0 &&
          state.st_size > 0)
        return true;
    }
    return false;
  }
};

/// At least one save is interrupted in its middle.
TEST_F(Saving, AnInterruptedSaveLeavesTheOldPlan) {
  ASSERT_EQ(run(large).status, 0);
  const std::string whole = content(path("plans.json"));
  ASSERT_EQ(run(saving).status, 0);
  const std::string old = content(path("plans.json"));
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    int interrupted = 0;
    for (int attempt = 0; attempt < 20 && interrupted == 0; ++attempt) {
      write("plans.json", old);
      const pid_t child = start(words_of(large));
      siginfo_t ended{};
      while (!is_writing(child) && waitid(P_PID, child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             ended.si_pid == 0) {
      }
      kill(child, signal);
      const bool was_killed = finish(child).status == -1;
      const std::string left = content(path("plans.json"));
      EXPECT_TRUE(left == old || left == whole)
          << "signal " << signal << " leaves " << left.size() << " bytes";
      EXPECT_THAT(files(), ElementsAre("plans.json")) << "signal " << signal;
      interrupted += was_killed && left == old ? 1 : 0;
    }
    EXPECT_GT(interrupted, 0) << "signal " << signal << " always came too late";
  }
}

TEST_F(Saving, AFullDiskLeavesTheOldFile) {
  ASSERT_EQ(run(saving).status, 0);
  const std::vector<std::pair<std::string, std::string>> saves{
      {"b.json", "plan " + small + " --save b.json"},
      {"machine.json", "plan " + small + " --save-machine machine.json"},
      {"a.svg", "timeline --plan plans.json --svg a.svg --trace a.trace"},
      {"a.trace", "timeline --plan plans.json --trace a.trace"}};
  for (const auto& [file, line] : saves) {
    const std::string old = "old " + file;
    write(file, old);
    const auto files_before = files();
    const Outcome outcome = finish(start(words_of(line), "", [] {
      const rlimit few_bytes{64, 64};
      signal(SIGXFSZ, SIG_IGN);
      setrlimit(RLIMIT_FSIZE, &few_bytes);
    }));
    EXPECT_EQ(outcome.status, 1) << line;
    EXPECT_THAT(outcome.err, HasSubstr("cannot be written")) << line;
    EXPECT_EQ(content(path(file)), old) << line;
    EXPECT_EQ(files(), files_before) << line;
  }
}

/// Where unnamed files are not to be had, as on NFS.
TEST_F(Saving, WithoutUnnamedFilesAHiddenOneIsReplaced) {
  write("plans.json", "old");
  EXPECT_EQ(finish(start(words_of(saving), "", refuse_unnamed_files)).status, 0);
  expect_plans("plans.json");
  const std::string old = content(path("plans.json"));
  EXPECT_EQ(finish(start(words_of(saving), "",
                         [&] {
                           refuse_unnamed_files();
                           const rlimit few_bytes{64, 64};
                           signal(SIGXFSZ, SIG_IGN);
                           setrlimit(RLIMIT_FSIZE, &few_bytes);
                         }))
                .status,
            1);
  EXPECT_EQ(content(path("plans.json")), old);
  EXPECT_THAT(files(), ElementsAre("plans.json"));
}

TEST_F(Saving, LinksAndPermissionsStay) {
  const auto permissions = [&](const std::string& file) {
    struct stat state {};
    stat(path(file).c_str(), &state);
    return state.st_mode & 0777;
  };
  fs::create_directory(path("folder"));
  write("folder/plans.json", "old");
  chmod(path("folder/plans.json").c_str(), 0640);
  fs::create_symlink("folder/plans.json", path("near"));
  fs::create_symlink(path("near"), path("plans.json"));
  EXPECT_EQ(run(saving).status, 0);
  EXPECT_TRUE(fs::is_symlink(path("plans.json")));
  EXPECT_TRUE(fs::is_symlink(path("near")));
  expect_plans("folder/plans.json");
  EXPECT_EQ(permissions("folder/plans.json"), 0640u);

  fs::create_symlink("folder/new.json", path("to_new"));
  const mode_t usual = umask(027);
  EXPECT_EQ(run("plan " + small + " --save to_new").status, 0);
  umask(usual);
  EXPECT_TRUE(fs::is_symlink(path("to_new")));
  expect_plans("folder/new.json");
  EXPECT_EQ(permissions("folder/new.json"), 0640u);
  EXPECT_THAT(files(), ElementsAre("folder", "near", "plans.json", "to_new"));
}

TEST_F(Saving, WhatIsNoRegularFileIsWrittenDirectly) {
  EXPECT_EQ(run("plan " + small + " --save /dev/null").status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));

  const Outcome to_stdout = run("plan " + small + " --save /dev/stdout");
  EXPECT_EQ(to_stdout.status, 0) << to_stdout.err;
  const std::size_t end = to_stdout.out.find("\nproblem  ");
  ASSERT_NE(end, std::string::npos);
  EXPECT_NO_THROW(EXPECT_EQ(json::parse(to_stdout.out.substr(0, end))["plans"].size(), 2u));

  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content(path("pipe")); });
  EXPECT_EQ(run("plan " + small + " --save pipe").status, 0);
  reader.join();
  EXPECT_NO_THROW(EXPECT_EQ(json::parse(read)["plans"].size(), 2u));
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

/// Nobody who may not write a file replaces it.
TEST_F(Saving, AWriteProtectedFileStays) {
  write("plans.json", "old");
  chmod(path("plans.json").c_str(), 0444);
  const auto as_others = [] { prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); };  // root may not write everything
  EXPECT_EQ(finish(start(words_of(saving), "", as_others)).status, 2);
  EXPECT_EQ(content(path("plans.json")), "old");
}

/// What cannot be written is said before the work that would be lost.
TEST_F(Saving, TheFileIsTriedBeforeTheWork) {
  const Outcome outcome = run("timeline --plan absent.json --svg /absent/a.svg");
  EXPECT_THAT(outcome.err, HasSubstr("--svg = /absent/a.svg: cannot be created"));
  EXPECT_EQ(run("timeline --plan absent.json --svg a.svg").status, 2);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace flashoverlap
