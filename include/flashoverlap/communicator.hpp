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

struct CommunicatorOptions {
  /// Bound of every wait on the host: for the other ranks to join, and for a run to end once it has begun.
  /// Making a communicator takes up to twice as long, an operator up to four times.
  std::chrono::milliseconds wait_limit{30'000};
};

/// GPU memory, freed with the last copy of `data`.
struct CollectiveMemory {
  std::shared_ptr<void> data;
  bool is_shared = false;  ///< registered with NCCL, on all ranks or none
};

/// This rank's end. Belongs to the GPU that was current when it was made, and every call assumes that this
/// GPU is current; used by one thread at a time, except for `check` and `abort`. Copies share the same end,
/// and the last one frees it. CUDA graphs that transfers were captured into must be destroyed before.
///
/// Transfers are asynchronous: they are enqueued on `stream` and every rank must enqueue the same ones in the
/// same order. What they read and write belongs to the caller until the stream has passed them. The first
/// transfer of its kind may wait on the host for the other ranks; `abort` by another thread ends that too.
class Communicator {
 public:
  /// Rank `rank` of `ranks` threads of this process that share `key`, an id made by `make_key` and handed to
  /// all of them (or to other processes, as bytes). Every rank calls this at the same time.
  /// Throws `CommunicationError` if not all ranks have joined within twice `options.wait_limit`.
  Communicator(const std::string& key, int rank, int ranks, const CommunicatorOptions& options = {});

  /// One process per GPU, started by torchrun, mpirun or Slurm: rank, size and the rank on this node are read
  /// from their environment variables, the GPU of the rank on this node is made current, and NCCL finds the
  /// others through NCCL_COMM_ID (rank 0's host:port), or MASTER_ADDR and the port after MASTER_PORT, where
  /// torchrun's own store listens. A process that sees one GPU only uses that one. Not for use while other
  /// threads read or change environment variables. Throws `InvalidArgument` naming the variable that is
  /// missing or wrong.
  static Communicator from_environment(const CommunicatorOptions& options = {});

  static std::string make_key();

  /// Ranks that pass the same color (≥ 0) form a group of their own, ordered by their rank here. Every rank
  /// calls this at the same time. Throws `CommunicationError` if one does not within `wait_limit`; then
  /// nothing can be split from here any more.
  Communicator split(int color) const;

  /// The same ranks with collectives on so many thread blocks, where NCCL can, and never on more (0: NCCL
  /// decides), made when first asked for; then every rank asks at the same time, as for `split`. `exchange`
  /// is not capped: only NCCL_MAX_P2P_NCHANNELS, set before the process makes its first communicator, bounds
  /// it, and that is left to the user.
  Communicator capped(int thread_blocks) const;

  /// Memory for collectives of this communicator, none for 0 bytes. If it is capped, NCCL is 2.29.7 or newer
  /// and GPUs address each other's memory, it is registered with NCCL (as a symmetric window). Over NVLink
  /// NCCL's kernels then load from and store to this memory of other ranks without buffers in between, and 12
  /// thread blocks are faster than 24 otherwise. What must be of this kind is all_reduce's data,
  /// reduce_scatter's source, all_gather's destination, each as far from its beginning on every rank.
  ///
  /// Every rank asks at the same time, for as many bytes, and may wait on the host for the others as in a
  /// first transfer. All give their memory back in the same order, at about the same time and after all that
  /// was enqueued with it has ended: unlike cudaFree this does not wait for the GPU.
  CollectiveMemory allocate(std::size_t bytes) const;

  int rank() const noexcept;
  int ranks() const noexcept;
  int device() const noexcept;
  const CommunicatorOptions& options() const noexcept;

  /// Counts are elements. In place where `source` and `destination` say so: all_reduce is always in place.
  void all_reduce(void* data, std::int64_t count, DataType data_type, Stream stream) const;
  /// `source` holds ranks · count elements, part r goes to rank r.
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
  /// All of them as one group; a pair of ranks matches sends and receives in order, and their counts are
  /// equal. Parts to this rank itself are copied.
  void exchange(const std::vector<Part>& sends, const std::vector<Part>& receives, DataType data_type,
                Stream stream) const;

  /// Throws `CommunicationError` naming this rank and NCCL's message if an error was noticed since, or the
  /// communicator was aborted.
  void check() const;

  /// Ends whatever is enqueued, here and in everything made by `split` and `capped`; what they would have
  /// written is undefined. Any thread may call it. Afterwards every call throws `CommunicationError` with
  /// `reason`, that of the first abort. Waits for the transfers to end, at most `wait_limit`: what they wait
  /// for on their stream must be released first, or by another thread. Other ranks are not told.
  void abort(const std::string& reason) const noexcept;

 private:
  struct State;
  explicit Communicator(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace flashoverlap
