#include "comm/process_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {
namespace {

struct Launcher {
  const char* rank;
  const char* ranks;
  const char* local_rank;
};

constexpr std::array launchers{
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK"},  // torchrun
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},  // MPICH
    Launcher{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

constexpr int largest_port = 65535;

/// `srun --mpi=pmi2` sets two of MPICH's variables, and mpirun inside a Slurm job runs with Slurm's: so the
/// first launcher that is complete, or else the first that has begun, whose missing variable is then named.
const Launcher& find_launcher(const Lookup& lookup) {
  const auto has = [&](const char* name) { return lookup(name).has_value(); };
  const auto* complete = std::ranges::find_if(
      launchers, [&](const Launcher& l) { return has(l.rank) && has(l.ranks) && has(l.local_rank); });
  if (complete != launchers.end()) return *complete;
  const auto* begun = std::ranges::find_if(launchers, has, &Launcher::rank);
  return begun != launchers.end() ? *begun : launchers.front();
}

std::string read(const Lookup& lookup, const std::string& name, std::string_view rule) {
  const std::optional<std::string> value = lookup(name);
  require(value.has_value(), name, "(not set)", rule);
  return *value;
}

std::optional<int> to_integer(std::string_view text, int minimum, int maximum) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  return whole && value >= minimum && value <= maximum ? std::optional(value) : std::nullopt;
}

int read_integer(const Lookup& lookup, const std::string& name, int minimum) {
  const std::string text = read(
      lookup, name, "must be set, as torchrun, mpirun and srun do, or by hand: RANK, WORLD_SIZE, LOCAL_RANK");
  const std::optional<int> value = to_integer(text, minimum, std::numeric_limits<int>::max());
  require(value.has_value(), name, in_quotes(text), fmt::format("must be an integer, at least {}", minimum));
  return *value;
}

void check_root(const std::string& root) {
  const std::size_t colon = root.rfind(':');
  const bool holds = colon != std::string::npos && colon > 0 &&
                     to_integer(std::string_view(root).substr(colon + 1), 1, largest_port).has_value();
  require(holds, "NCCL_COMM_ID", in_quotes(root), "must be rank 0's host:port, the same on every rank");
}

std::string root_next_to_master(const Lookup& lookup) {
  const std::string host =
      read(lookup, "MASTER_ADDR", "must be rank 0's host, or NCCL_COMM_ID its host:port");
  require(!host.empty(), "MASTER_ADDR", in_quotes(host), "must be rank 0's host");
  const std::string port = read(lookup, "MASTER_PORT", "must be set with MASTER_ADDR");
  const std::optional<int> master = to_integer(port, 1, largest_port - 1);
  require(master.has_value(), "MASTER_PORT", in_quotes(port),
          fmt::format("must be between 1 and {}, as the port after it is used", largest_port - 1));
  const bool bare_ipv6 = host.front() != '[' && host.find(':') != std::string::npos;
  return (bare_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(*master + 1);
}

}  // namespace

bool peer_access_is_disabled(const Lookup& lookup) { return lookup("NCCL_P2P_DISABLE") == "1"; }

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::uint64_t host_identity() {
  std::string text;
  if (const auto host = environment_variable("NCCL_HOSTID")) {
    text = *host;
  } else {
    std::array<char, 256> host_name{};
    gethostname(host_name.data(), host_name.size() - 1);
    std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
    text += host_name.data();
  }
  return std::hash<std::string>()(text);
}

std::optional<LaunchedProcesses> launched_processes(const Lookup& lookup) {
  const Launcher& launcher = find_launcher(lookup);
  if (!lookup(launcher.rank) || !lookup(launcher.ranks)) return std::nullopt;
  return LaunchedProcesses{launcher.ranks, read_integer(lookup, launcher.ranks, 1)};
}

ProcessEnvironment read_process_environment(const Lookup& lookup) {
  const Launcher& launcher = find_launcher(lookup);
  ProcessEnvironment environment;
  environment.rank = read_integer(lookup, launcher.rank, 0);
  environment.ranks = read_integer(lookup, launcher.ranks, 1);
  environment.local_rank = read_integer(lookup, launcher.local_rank, 0);
  const std::string rule = fmt::format("must be less than {} = {}", launcher.ranks, environment.ranks);
  require(environment.rank < environment.ranks, launcher.rank, environment.rank, rule);
  require(environment.local_rank < environment.ranks, launcher.local_rank, environment.local_rank, rule);

  if (const std::optional<std::string> root = lookup("NCCL_COMM_ID")) {
    check_root(*root);
    environment.root = *root;
  } else {
    environment.root = root_next_to_master(lookup);
  }
  return environment;
}

int choose_gpu(const ProcessEnvironment& environment, int gpus) {
  if (gpus == 1) return 0;
  require(environment.local_rank < gpus, "rank on this node", environment.local_rank,
          fmt::format("must be less than its {} GPUs", gpus));
  return environment.local_rank;
}

}  // namespace flashoverlap
