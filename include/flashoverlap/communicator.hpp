/// Ranks on GPUs that communicate through NCCL: one process with a thread per GPU, or one process per GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flashoverlap/error.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/stream.hpp"

namespace flashoverlap {

class Farewell;
class RunWatch;

struct CommunicatorOptions {
  /// Limit of every wait on the host, more than 0 and at most a day: for the other ranks to join, and for a
  /// run to end once it has begun. Constructing a communicator takes up to twice this time, an operator up to
  /// four times.
  std::chrono::milliseconds wait_limit{30'000};
  /// Whether other kernels that wait for ranks may run on these GPUs at the same time, on other streams:
  /// those of NCCL in data parallelism next to tensor parallelism, say. Schedules are then chosen that let
  /// such a kernel have multiprocessors and do not wait for it (docs/gpus.md). As rank 0 says. A group of
  /// fewer ranks that `split` makes has it.
  bool concurrent_collectives = false;
};

/// GPU memory, freed with the last copy of `data`.
struct CollectiveMemory {
  std::shared_ptr<void> data{};
  std::size_t bytes = 0;
  bool is_shared = false;  ///< registered with NCCL, on all ranks or on none
};

/// One rank of a group of ranks. It belongs to the GPU that was current when it was constructed, and every
/// call requires that this GPU is current. Used by one thread at a time, except for `throw_if_failed` and
/// `abort`. Copies share one NCCL communicator, which is destroyed with the last copy. Destroy CUDA graphs
/// that have captured transfers before that.
///
/// Transfers are asynchronous: they are enqueued on `stream`, and every rank enqueues the same ones in the
/// same order. The caller owns the memory that they read and write, and keeps it until the stream has
/// completed them. The first transfer of a kind may wait on the host for the other ranks; `abort` from
/// another thread ends that wait too.
class Communicator {
 public:
  /// Rank `rank` of `ranks`. All ranks pass the same `key` from `make_key`, to threads of one process or, as
  /// bytes, to other processes. Collective: every rank calls this at the same time.
  /// Throws `CommunicationError` if not all ranks have joined within twice `options.wait_limit`.
  Communicator(const std::string& key, int rank, int ranks, const CommunicatorOptions& options = {});

  /// One process per GPU, started by torchrun, mpirun or Slurm. Rank, world size and local rank come from
  /// their environment variables, and the GPU of the local rank becomes current (a process that sees only one
  /// GPU uses that one). NCCL finds the other ranks through NCCL_COMM_ID (rank 0's host:port) or, where that
  /// is not set, MASTER_ADDR and the port after MASTER_PORT, as torchrun's own store listens on MASTER_PORT.
  /// Call it while no other thread reads or changes environment variables. Throws `InvalidArgument` that
  /// names the variable which is missing or wrong.
  static Communicator from_environment(const CommunicatorOptions& options = {});

  /// For ranks that are to meet. Throws `InvalidArgument` where NCCL_COMM_ID is set: all keys would then mean
  /// the same place.
  static std::string make_key();

  /// Ranks that pass the same color (≥ 0) form a group of their own, ordered by their rank here. Collective.
  /// Throws `CommunicationError` if a rank does not call it within `wait_limit`; after that this communicator
  /// cannot be split any more.
  Communicator split(int color) const;

  /// The same ranks, with collectives limited to this many thread blocks (0: NCCL decides). Constructed on
  /// the first call for each number, which is collective like `split`. `exchange` is not limited: only
  /// NCCL_MAX_P2P_NCHANNELS, set before the process constructs its first communicator, limits it.
  Communicator capped(int thread_blocks) const;

  /// Memory for collectives of this communicator, none for 0 bytes. If it is capped, NCCL is 2.29.7 or newer
  /// and GPUs address each other's memory, the memory is registered with NCCL as a symmetric window. Over
  /// NVLink NCCL's kernels then load from and store to this memory on other ranks directly, and 12 thread
  /// blocks are faster than 24 otherwise. Use it for all_reduce's data, reduce_scatter's source and
  /// all_gather's destination, at the same offset on every rank.
  ///
  /// Collective: every rank asks for the same number of bytes, and may wait on the host for the others as in
  /// a first transfer. Throws `CommunicationError` as transfers do. All ranks free their memory in the same
  /// order, at about the same time and after everything enqueued with it has completed: unlike cudaFree this
  /// does not wait for the GPU.
  CollectiveMemory allocate(std::size_t bytes) const;

  /// The same memory, registered with this communicator too, where `allocate` would register it. It may have
  /// been allocated by another communicator of the same ranks, with another cap. Collective as `allocate`.
  CollectiveMemory share(const CollectiveMemory& memory) const;

  int rank() const noexcept;
  int ranks() const noexcept;
  int device() const noexcept;
  const CommunicatorOptions& options() const noexcept;

  /// Transfers are enqueued on the stream. The first of a kind may wait on the host until the other ranks
  /// enqueue theirs, at most for `wait_limit`. They throw `InvalidArgument` for negative counts and wrong
  /// peers, and `CommunicationError` if NCCL refuses them, a rank is lost or the communicator was aborted.
  ///
  /// Counts are elements. all_reduce is in place; the others are in place where `source` and `destination`
  /// are the memory that NCCL's in-place rules name.
  void all_reduce(void* data, std::int64_t count, DataType data_type, Stream stream) const;
  /// `source` holds ranks · count elements; part r goes to rank r.
  void reduce_scatter(const void* source, void* destination, std::int64_t count, DataType data_type,
                      Stream stream) const;
  /// `destination` holds ranks · count elements, in rank order.
  void all_gather(const void* source, void* destination, std::int64_t count, DataType data_type,
                  Stream stream) const;

  struct Part {
    int peer = 0;
    void* data = nullptr;  ///< only read where it is sent
    std::int64_t count = 0;
  };
  /// Sends and receives as one NCCL group. A pair of ranks matches them in order, with equal counts. Parts
  /// for this rank itself are copied; `InvalidArgument` if those sent and received differ.
  void exchange(const std::vector<Part>& sends, const std::vector<Part>& receives, DataType data_type,
                Stream stream) const;

  /// Throws `CommunicationError` with this rank and NCCL's message if NCCL has reported an error or the
  /// communicator was aborted. Does not wait. Any thread may call it.
  void throw_if_failed() const;

  /// Ends everything that is enqueued, here and in what `split` and `capped` returned; the memory that it
  /// would have written is undefined. Afterwards every call throws `CommunicationError` with the `reason` of
  /// the first abort. Waits at most `wait_limit` for the transfers to end: release what they wait for on
  /// their stream first, or from another thread. Other ranks are not told. Any thread may call it.
  void abort(const std::string& reason) const noexcept;

  /// Whether one is a copy of the other.
  bool operator==(const Communicator&) const = default;

 private:
  friend std::shared_ptr<RunWatch> run_watch(const Communicator& communicator);
  friend Farewell& farewell_of(const Communicator& communicator);

  struct State;
  explicit Communicator(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace flashoverlap
