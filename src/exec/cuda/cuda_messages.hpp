#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cuda/handles.hpp"
#include "exec/cuda/enqueued_runs.hpp"
#include "exec/cuda/plan_memory.hpp"
#include "exec/cuda/resolved_raise.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "exec/cuda/store_run.hpp"
#include "exec/cuda/stream_memory.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct MessageOptions {
  bool counts = true;  ///< whether tiles and messages wait for counters; see `InOrder`
  bool record_times = false;
};

/// A message list on a stream: per message a wait for its counters, then the transfer, then the raises.
/// Stores that follow each other are one kernel (`StoreRun`). Words of host memory say which captured run the
/// stream is at, how many of a run's messages are done, and whether a kernel waits for long or has waited in
/// vain. A captured run is written down by what its messages' stream does first and last: nodes of their own
/// next to it took 5 to 40 µs of runs by `copy`. One without messages is not: its kernel tells of long waits
/// itself. Captured runs whose messages are nothing but transfers by NCCL share what tells of them
/// (`GraphMarks`).
class CudaMessages {
 public:
  /// The list of rank `alone.rank()` of `plans`: its plan's, or one that is made from it. `during_gemm` makes
  /// the transfers that meet the GEMM; `alone` the one after its last tiles, which has the GPU to itself,
  /// unless `during_gemm` is fast enough (`is_fast_enough`). Loads kernels.
  CudaMessages(const std::vector<Plan>& plans, std::vector<Message> messages, const Communicator& alone,
               const Communicator& during_gemm, const PlanMemory& memory, const RowPitches& pitches,
               const MessageOptions& options);

  std::size_t size() const noexcept { return messages_.size(); }

  /// Another list, for a plan that has taken other routes, with raises that nothing but this rank's messages
  /// raises. No run is under way; `stream` takes to the GPU what the next one needs there.
  void replace(std::vector<Message> messages, cudaStream_t stream);

  /// Begins a run on the caller's stream, which `end` must end there, or `break_off` where it cannot be
  /// enqueued. Nothing waits until either is written down.
  void begin(cudaStream_t stream);
  /// Messages from `first` to before `last`. `own`: this rank's buffers. `computed`: recorded when every tile
  /// is done; null where the stream itself has computed them by the first message that needs them all.
  void enqueue(std::size_t first, std::size_t last, const Buffers& own, cudaStream_t stream,
               cudaEvent_t computed);
  /// Raises and resets after the last message wait for the next one; this sends them on their way now.
  void flush(cudaStream_t stream);
  /// From here on the stream has made every transfer.
  void join(cudaStream_t stream);
  /// The last message is enqueued: a captured run writes so with what the stream does next. A kernel that has
  /// tiles to compute then tells of long waits itself.
  void note_end(cudaStream_t stream);
  void end(cudaStream_t stream);
  /// After an error on the way. False: nothing of the run is enqueued, as it was captured.
  bool break_off(cudaStream_t stream) noexcept { return runs_.break_off(stream); }

  /// All transfers by themselves, without waits and raises: connects ranks while no tile waits for them. A
  /// run.
  void rehearse(const Buffers& own, cudaStream_t stream);

  /// The number of the run that is under way; 0: none. By any thread. Replays of a captured run have the
  /// same; after the last message, and where a kernel makes all, they are noticed when the kernel waits for
  /// long.
  std::uint32_t running();
  /// `cudaErrorNotReady` until all runs have ended that were not captured. By any thread.
  cudaError_t query() { return runs_.query(); }
  /// For the kernel: the word by which it tells of waits that have lasted for the limit.
  std::uint32_t* long_wait() const noexcept { return words_.device(long_wait_word); }
  bool waits_long() const noexcept { return words_.read(long_wait_word) != 0; }
  /// Throws `WaitExpired` if a kernel has waited in vain in any run.
  void check_waits() const;
  /// What the run that is under way waits for, as the error to throw. Reads the counters.
  std::exception_ptr report() const;
  /// Lets every wait on the stream, and of tiles, pass. False: they may not pass yet.
  bool release() const noexcept;

  std::vector<MessageTimes> times(const std::function<double(cudaEvent_t)>& since_begin) const;

 private:
  static constexpr std::size_t running_word = 0;
  static constexpr std::size_t done_word = 1;
  static constexpr std::size_t expired_word = 2;
  static constexpr std::size_t long_wait_word = 3;
  static constexpr std::uint32_t waiting_run = ~0U;  ///< number of one that only its kernel tells of

  /// Of a message; stores that are one kernel share it.
  struct Times {
    CudaEvent signalled{cudaEventDefault};
    CudaEvent done{cudaEventDefault};
  };

  std::vector<StoredRectangle> gather_stores();
  void note_plan();
  const Communicator& communicator_for(std::size_t index) const;
  void enqueue_stores(std::size_t first, const StoreRun& stores, const Buffers& own, cudaStream_t stream);
  void enqueue_in_stream(std::size_t index, const Buffers& own, cudaStream_t stream);
  void add_waits(const Message& message);
  void transfer(std::size_t index, const Buffers& own, cudaStream_t stream) const;
  bool shares_times(std::size_t index) const;
  void copy(const Message& message, const Buffers& own, cudaStream_t stream) const;
  void record(std::size_t index, CudaEvent Times::*event, cudaStream_t stream) const;
  void reset_awaited(const Message& message);
  void reset_and_raise(std::size_t index, cudaStream_t stream);
  void* at(const Buffers& own, const Region& region, int rank) const;
  std::int64_t count(const Region& region) const;
  std::vector<Communicator::Part> parts(std::span<const Part> parts, const Buffers& own) const;
  void note_done(std::size_t messages);
  /// Captured ones, each for itself.
  bool writes_runs() const { return graph_marks_ == nullptr && !messages_.empty(); }
  std::string missing_for_tiles(const std::vector<std::uint32_t>& values) const;

  const Plan& plan_;
  const MessageOptions options_;
  std::vector<Message> messages_;
  const Communicator& alone_;
  const Communicator& during_gemm_;
  const PlanMemory& memory_;
  GraphMarks* const
      graph_marks_;  // null where messages may wait for counters: then runs have a word of their own
  const RowPitches& pitches_;
  std::uint32_t* const counters_;                   // this rank's
  std::vector<std::vector<ResolvedRaise>> raises_;  // [message]
  std::map<std::size_t, StoreRun> stores_;          // by the first message
  StoreMemory stored_;
  std::vector<bool> awaited_by_tiles_;  // [counter]
  MappedWords words_{4};
  StreamMemoryBatch pending_;
  EnqueuedRuns runs_;
  std::uint32_t captured_runs_ = 0;
  bool notes_done_ = false;  ///< a run whose only message follows the GEMM does not say which one is done
  std::vector<std::shared_ptr<Times>> times_;
};

}  // namespace flashoverlap
