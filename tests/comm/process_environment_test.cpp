#include "comm/process_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <ostream>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Lookup in(const Variables& variables) {
  return [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

ProcessEnvironment read(const Variables& variables) { return read_process_environment(in(variables)); }

std::optional<LaunchedProcesses> launched(const Variables& variables) {
  return launched_processes(in(variables));
}

/// The variables of rank 5 of 8, the second on its node, but for those of `changes`; empty: not set.
Variables torchrun(const Variables& changes = {}) {
  Variables variables{{"RANK", "5"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"MASTER_ADDR", "node0"},
                      {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) {
    variables[name] = value;
    if (value.empty()) variables.erase(name);
  }
  return variables;
}

void expect_refused(const Variables& variables, const std::string& name, const std::string& value,
                    const std::string& rule) {
  try {
    read(variables);
    ADD_FAILURE() << name << " = " << value << " was accepted";
  } catch (const InvalidArgument& refusal) {
    EXPECT_EQ(refusal.argument(), name);
    EXPECT_THAT(refusal.what(), AllOf(HasSubstr(" = " + value + ": "), HasSubstr(rule)));
  }
}

TEST(ProcessEnvironment, PeerAccessIsDisabledByNcclsVariableAlone) {
  EXPECT_FALSE(peer_access_is_disabled(in({})));
  EXPECT_FALSE(peer_access_is_disabled(in({{"NCCL_P2P_DISABLE", "0"}})));
  EXPECT_TRUE(peer_access_is_disabled(in({{"NCCL_P2P_DISABLE", "1"}})));
}

struct LauncherCase {
  std::string name;
  std::array<std::string, 3> variables;

  friend void PrintTo(const LauncherCase& launcher, std::ostream* stream) { *stream << launcher.name; }
};

class EachLauncher : public testing::TestWithParam<LauncherCase> {};

TEST_P(EachLauncher, IsRead) {
  const auto& [rank, ranks, local_rank] = GetParam().variables;
  const ProcessEnvironment environment =
      read({{rank, "5"}, {ranks, "8"}, {local_rank, "1"}, {"NCCL_COMM_ID", "10.0.0.1:4000"}});
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.ranks, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.root, "10.0.0.1:4000");
}

TEST_P(EachLauncher, NamesTheVariableThatIsMissing) {
  const auto& [rank, ranks, local_rank] = GetParam().variables;
  expect_refused({{rank, "5"}, {local_rank, "1"}}, ranks, "(not set)", "torchrun");
  expect_refused({{rank, "5"}, {ranks, "8"}}, local_rank, "(not set)", "torchrun");
}

TEST_P(EachLauncher, MeetsWhereItIsTold) {
  const auto& [rank, ranks, local_rank] = GetParam().variables;
  Variables variables{{rank, "5"}, {ranks, "8"}, {local_rank, "1"}};
  expect_refused(variables, "MASTER_ADDR", "(not set)", "or NCCL_COMM_ID its host:port");
  variables["MASTER_ADDR"] = "node0";
  expect_refused(variables, "MASTER_PORT", "(not set)", "MASTER_ADDR");
  variables["MASTER_PORT"] = "29500";
  EXPECT_EQ(read(variables).root, "node0:29501");
}

TEST_P(EachLauncher, TellsHowManyProcessesItHasStarted) {
  const auto& [rank, ranks, local_rank] = GetParam().variables;
  const auto found = launched({{rank, "1"}, {ranks, "4"}, {local_rank, "1"}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->count, 4);
  EXPECT_EQ(found->variable, ranks);
}

/// In a Slurm job srun starts one process on each node: mpirun's or torchrun's, which starts the ranks.
TEST_P(EachLauncher, IsPreferredToTheSlurmJobAroundIt) {
  const auto& [rank, ranks, local_rank] = GetParam().variables;
  Variables variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}};
  for (const auto& [name, value] : Variables{{rank, "5"}, {ranks, "8"}, {local_rank, "1"}})
    variables[name] = value;
  variables["NCCL_COMM_ID"] = "node0:4000";
  const ProcessEnvironment environment = read(variables);
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.ranks, 8);
  EXPECT_EQ(environment.local_rank, 1);
}

INSTANTIATE_TEST_SUITE_P(ProcessEnvironment, EachLauncher,
                         testing::Values(LauncherCase{"torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}},
                                         LauncherCase{"open_mpi",
                                                      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                       "OMPI_COMM_WORLD_LOCAL_RANK"}},
                                         LauncherCase{"mpich", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}},
                                         LauncherCase{"slurm",
                                                      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}),
                         [](const auto& launcher) { return launcher.param.name; });

TEST(ProcessEnvironment, TellsThatNobodyHasStartedProcesses) {
  EXPECT_FALSE(launched({}).has_value());
  EXPECT_FALSE(launched({{"SLURM_NTASKS", "4"}}).has_value()) << "in the shell of an allocation";
  EXPECT_THROW(launched({{"RANK", "0"}, {"WORLD_SIZE", "many"}}), InvalidArgument);
}

TEST(ProcessEnvironment, MeetsAtThePortAfterTorchrunsStore) {
  EXPECT_EQ(read(torchrun()).root, "node0:29501");
  EXPECT_EQ(read(torchrun({{"MASTER_ADDR", "fe80::1"}})).root, "[fe80::1]:29501");
  EXPECT_EQ(read(torchrun({{"MASTER_ADDR", "[fe80::1]"}})).root, "[fe80::1]:29501");
}

TEST(ProcessEnvironment, PrefersNcclCommId) {
  EXPECT_EQ(read(torchrun({{"NCCL_COMM_ID", "[::1]:7"}})).root, "[::1]:7");
}

TEST(ProcessEnvironment, PassesOverALauncherThatIsNotComplete) {
  const Variables pmi_under_slurm{{"PMI_RANK", "3"},      {"PMI_SIZE", "4"},      {"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "1"}, {"MASTER_ADDR", "node0"},
                                  {"MASTER_PORT", "1000"}};
  EXPECT_EQ(read(pmi_under_slurm).local_rank, 1);
}

TEST(ProcessEnvironment, TakesTheGpuOfTheLocalRank) {
  const ProcessEnvironment environment{.rank = 13, .ranks = 16, .local_rank = 5};
  EXPECT_EQ(choose_gpu(environment, 8), 5);
  EXPECT_EQ(choose_gpu(environment, 6), 5);
  EXPECT_EQ(choose_gpu(environment, 1), 0) << "srun --gpus-per-task=1 shows each process its own alone";
  try {
    choose_gpu(environment, 5);
    FAIL() << "there is no GPU 5";
  } catch (const InvalidArgument& refusal) {
    EXPECT_STREQ(refusal.what(), "rank on this node = 5: must be less than its 5 GPUs");
  }
}

TEST(ProcessEnvironment, CountsTheProcessesOfTheLauncherThatIsRead) {
  const Variables slurm_with_two_more{{"RANK", "0"},
                                      {"WORLD_SIZE", "2"},
                                      {"SLURM_PROCID", "3"},
                                      {"SLURM_NTASKS", "4"},
                                      {"SLURM_LOCALID", "1"}};
  const auto found = launched(slurm_with_two_more);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->count, 4);
}

TEST(ProcessEnvironment, AsksForALauncher) { expect_refused({}, "RANK", "(not set)", "mpirun"); }

TEST(ProcessEnvironment, RefusesWhatIsNoNumber) {
  for (const std::string value : {"five", "5x", " 5", "-1", "99999999999"}) {
    expect_refused(torchrun({{"RANK", value}}), "RANK", '"' + value + '"', "at least 0");
  }
  expect_refused(torchrun({{"WORLD_SIZE", "0"}}), "WORLD_SIZE", "\"0\"", "at least 1");
  expect_refused(torchrun({{"LOCAL_RANK", "1.5"}}), "LOCAL_RANK", "\"1.5\"", "at least 0");
}

TEST(ProcessEnvironment, RefusesRanksBeyondTheLast) {
  expect_refused(torchrun({{"RANK", "8"}}), "RANK", "8", "less than WORLD_SIZE = 8");
  expect_refused(torchrun({{"LOCAL_RANK", "9"}}), "LOCAL_RANK", "9", "less than WORLD_SIZE = 8");
}

TEST(ProcessEnvironment, RefusesToMeetNowhere) {
  expect_refused(torchrun({{"MASTER_ADDR", ""}}), "MASTER_ADDR", "(not set)", "NCCL_COMM_ID");
  expect_refused(torchrun({{"MASTER_PORT", ""}}), "MASTER_PORT", "(not set)", "MASTER_ADDR");
  for (const std::string port : {"0", "65535", "http"}) {
    expect_refused(torchrun({{"MASTER_PORT", port}}), "MASTER_PORT", '"' + port + '"', "65534");
  }
  for (const std::string root : {"node0", ":4000", "node0:", "node0:0", "node0:65536", "node0:port"}) {
    expect_refused(torchrun({{"NCCL_COMM_ID", root}}), "NCCL_COMM_ID", '"' + root + '"', "host:port");
  }
}

}  // namespace
}  // namespace flashoverlap
