/// What environment variables say of the ranks: their launcher's, and NCCL's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace flashoverlap {

struct ProcessEnvironment {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< among the ranks on this node
  std::string root;    ///< host:port at which rank 0 waits for the others, as NCCL_COMM_ID spells it
};

/// A variable's value; empty where it is not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Of this process.
std::optional<std::string> environment_variable(const std::string& name);

/// Whether NCCL_P2P_DISABLE forbids GPUs to address each other's memory: NCCL's, and so this library's.
bool peer_access_is_disabled(const Lookup& lookup);

/// The same for processes of one host. NCCL_HOSTID tells NCCL's ranks apart, and these.
std::uint64_t host_identity();

/// How many processes a launcher has started, as its variable says.
struct LaunchedProcesses {
  std::string variable;
  int count = 1;
};

/// Nothing where no launcher has set its rank and its number of ranks.
std::optional<LaunchedProcesses> launched_processes(const Lookup& lookup);

/// Reads the variables of torchrun, Open MPI, MPICH or Slurm: the first of them, in this order, that has set
/// all of its three. The root is NCCL_COMM_ID, or MASTER_ADDR with the port after MASTER_PORT: at MASTER_PORT
/// itself torchrun's store listens. Throws `InvalidArgument` naming the variable that is missing or wrong.
ProcessEnvironment read_process_environment(const Lookup& lookup);

/// The GPU of a process that sees this many: that of its local rank, unless its launcher shows it only one.
int choose_gpu(const ProcessEnvironment& environment, int gpus);

}  // namespace flashoverlap
