#include "measure/transfer_curves.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "comm/give_up.hpp"
#include "comm/peer_memory.hpp"
#include "cuda/random_fill.hpp"
#include "exec/cuda/stream_memory.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/captured_runs.hpp"
#include "measure/interleave.hpp"
#include "measure/lone_gemm.hpp"
#include "measure/rising_curve.hpp"
#include "measure/trials.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;
constexpr int repetitions = 5;

constexpr std::array collective_kinds{MessageKind::all_reduce, MessageKind::reduce_scatter,
                                      MessageKind::all_gather, MessageKind::exchange};

/// From CUDA graphs of runs that last `least_us` together, as what operators are made of.
double median_us(const GpuRank& gpu, const std::function<void()>& launch, double least_us = 500) {
  gpu.elapsed_us(launch);
  const double once_us = gpu.elapsed_us(launch);
  std::vector<double> times;
  {
    const CapturedRuns runs(gpu, once_us, least_us, [&](int) { launch(); });
    for (int repetition = -1; repetition < repetitions; ++repetition) {
      const double us = runs.measure_us();
      if (repetition >= 0) times.push_back(us);
    }
    gpu.barrier();
  }
  gpu.barrier();
  return gpu.maximum(median(times));
}

/// Of single runs while what `prepare` enqueues on another stream goes on.
double median_us_during(const GpuRank& gpu, const std::function<void()>& launch,
                        const std::function<void()>& prepare) {
  std::vector<double> times;
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    prepare();
    const double us = gpu.elapsed_us(launch);
    if (repetition >= 0) times.push_back(us);
  }
  return gpu.maximum(median(times));
}

void add_point(Curve& curve, std::int64_t bytes, double us) {
  add_rising_point(curve, static_cast<double>(bytes), std::max(us, 0.1));
}

/// A GEMM of some waves on part of the multiprocessors, on a stream of its own or the rank's. One of 0.2 ms
/// is slowed by up to 0.1 more, as it lasts no longer than collectives take to begin.
class PartialGemm {
 public:
  PartialGemm(const GpuRank& gpu, const Machine& machine, int multiprocessors)
      : gpu_(gpu),
        operands_(problem()),
        kernel_(make_plan(problem(),
                          kernel_schedule(machine_kernels(machine), Strategy::sequential,
                                          {machine_kernels(machine).tiles.front()}, multiprocessors),
                          0),
                gpu.stream()) {
    operands_.fill(/*seed=*/1, gpu.rank(), gpu.stream());
    alone_us_ = median_us_during(
        gpu, [this] { launch(gpu_.stream()); }, [] {});
  }
  double alone_us() const { return alone_us_; }
  void launch(cudaStream_t stream) { kernel_.launch(operands_, stream); }

  /// Enqueues GEMMs on its own stream that take at least this long.
  void keep_busy(double microseconds) {
    for (double us = 0; us < microseconds; us += alone_us_) launch(stream_);
  }
  void wait() const {
    await_stream(stream_, gpu_.communicator(), gpu_.communicator().options().wait_limit,
                 "what ran concurrently did not finish");
  }

  /// How long the other work lasts that `slowdown` needs; in the first part of it the ranks begin.
  double sending_us() const { return 1000 + 3 * alone_us_; }

  /// How many times as long it takes while what `send` enqueues on its own stream runs.
  double slowdown(const std::function<void(cudaStream_t)>& send) {
    const double together_us = median_us_during(
        gpu_, [&] { launch(gpu_.stream()); },
        [&] {
          wait();
          send(stream_);
        });
    wait();
    return std::clamp(together_us / alone_us_, 1.0, 100.0);
  }

 private:
  static Problem problem() { return {.m = 8192, .n = 8192, .k = 8192}; }

  const GpuRank& gpu_;
  CudaStream stream_;
  GpuOperands operands_;
  LoneGemm kernel_;
  double alone_us_ = 0;
};

/// Whose memory the result of an all-reduce is. A reduce-scatter takes as long in either.
enum class SumsIn : std::uint8_t { own, callers };

/// Collectives of one communicator on memory as operators pass it (`meets_collectives`): all-gathers read an
/// operand, reduce-scatters write a caller's result, and exchanges are between memory that NCCL does not
/// know. All ranks free this together, after `gpu.barrier()`.
class MeasuredCollectives {
 public:
  MeasuredCollectives(const GpuRank& gpu, int thread_blocks, std::int64_t most_bytes)
      : gpu_(gpu),
        communicator_(gpu.communicator().capped(thread_blocks)),
        operand_(static_cast<std::size_t>(most_bytes)),
        received_(static_cast<std::size_t>(most_bytes)),
        source_(communicator_.allocate(static_cast<std::size_t>(most_bytes))),
        destination_(communicator_.allocate(static_cast<std::size_t>(most_bytes))) {
    for (void* const memory : {source_.data.get(), static_cast<void*>(operand_.data())}) {
      FLASHOVERLAP_CUDA(fill_random(memory, most_bytes / 2, DataType::bf16,
                                    static_cast<std::uint64_t>(gpu.rank()), gpu.stream()));
    }
    for (const MessageKind kind : collective_kinds) launch(kind, mebibyte, gpu.stream());  // connects
    launch(MessageKind::all_reduce, mebibyte, gpu.stream(), SumsIn::callers);
    gpu.barrier();
  }
  bool has_shared_memory() const { return source_.is_shared; }

  /// `bytes`: of the whole matrix.
  void launch(MessageKind kind, std::int64_t bytes, cudaStream_t stream, SumsIn memory = SumsIn::own) const {
    constexpr auto type = DataType::bf16;
    const int ranks = communicator_.ranks();
    const std::int64_t part = bytes / 2 / ranks;
    auto* const sums = static_cast<std::uint16_t*>(source_.data.get());
    auto* const from = reinterpret_cast<std::uint16_t*>(operand_.data());
    auto* const to = static_cast<std::uint16_t*>(destination_.data.get());
    auto* const received = reinterpret_cast<std::uint16_t*>(received_.data());
    if (kind == MessageKind::all_reduce) {
      return communicator_.all_reduce(memory == SumsIn::own ? sums : received, part * ranks, type, stream);
    }
    if (kind == MessageKind::reduce_scatter)
      return communicator_.reduce_scatter(sums, received, part, type, stream);
    if (kind == MessageKind::all_gather) return communicator_.all_gather(from, to, part, type, stream);
    std::vector<Communicator::Part> sends;
    std::vector<Communicator::Part> receives;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == communicator_.rank()) continue;
      sends.push_back({peer, from + peer * part, part});
      receives.push_back({peer, received + peer * part, part});
    }
    communicator_.exchange(sends, receives, type, stream);
  }

  double alone_us(MessageKind kind, std::int64_t bytes, SumsIn memory = SumsIn::own) const {
    return median_us(gpu_, [&] { launch(kind, bytes, gpu_.stream(), memory); });
  }

  double during_us(PartialGemm& gemm, MessageKind kind, std::int64_t bytes, double at_least_us,
                   SumsIn memory) const {
    constexpr double meeting_us = 300;  // until all ranks have begun
    constexpr double worst_slowdown = 4;
    const double us = median_us_during(
        gpu_, [&] { launch(kind, bytes, gpu_.stream(), memory); },
        [&] {
          gemm.wait();
          gemm.keep_busy(meeting_us + worst_slowdown * at_least_us);
        });
    gemm.wait();
    return std::max(us, at_least_us);
  }

 private:
  const GpuRank& gpu_;
  Communicator communicator_;
  DeviceArray<std::byte> operand_;
  DeviceArray<std::byte> received_;
  CollectiveMemory source_;
  CollectiveMemory destination_;
};

/// One rank's copies to each of the others, one after the other. Ranks that are not in step copy to the same
/// one at times, which copies to one neighbour each would not show.
class PeerCopies {
 public:
  PeerCopies(const GpuRank& gpu, std::int64_t most_bytes)
      : memory_(gpu.communicator(), static_cast<std::size_t>(2 * most_bytes)), from_(memory_.of(gpu.rank())) {
    for (int distance = 1; distance < gpu.ranks(); ++distance)
      to_.push_back(memory_.of((gpu.rank() + distance) % gpu.ranks()) + most_bytes);
  }

  void copy(std::int64_t bytes, cudaStream_t stream) const {
    for (std::byte* const to : to_) {
      FLASHOVERLAP_CUDA(
          cudaMemcpyAsync(to, from_, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
    }
  }

 private:
  PeerMemory memory_;
  std::byte* from_;
  std::vector<std::byte*> to_;
};

/// Gathering this many bytes from every other rank, next to a GEMM of next to nothing.
double gather_us(const GpuRank& gpu, const Machine& machine, Strategy strategy, std::int64_t bytes,
                 int comm_multiprocessors) {
  constexpr std::int64_t k = 4096;
  const std::int64_t rows = std::max<std::int64_t>(1, bytes / (2 * k));
  const Problem problem{
      .operation = Operation::all_gather_gemm, .m = rows * gpu.ranks(), .n = 8, .k = k, .ranks = gpu.ranks()};
  Schedule schedule = kernel_schedule(machine, problem, strategy, Layout::natural,
                                      machine.multiprocessors - comm_multiprocessors, comm_multiprocessors);
  schedule.waves_per_group = 1 << 20;
  GpuOperands operands(problem);
  operands.fill(/*seed=*/1, gpu.rank(), gpu.stream());
  gpu.barrier();
  double us = 0;
  {
    Operator op(make_plans(problem, schedule), gpu.communicator(), {.own_result = true});
    us = median_us(
        gpu, [&] { op.run(operands.a.data(), operands.b.data(), nullptr, gpu.stream()); }, sample_us);
    op.wait();
    gpu.barrier();
  }
  gpu.barrier();
  return us;
}

/// The least of five, each in memory of its own: on 4 H200, one of four took 10 % longer than the others.
double least_gather_us(const GpuRank& gpu, const Machine& machine, Strategy strategy, std::int64_t bytes,
                       int comm_multiprocessors) {
  double least_us = gather_us(gpu, machine, strategy, bytes, comm_multiprocessors);
  for (int more = 0; more < 4; ++more)
    least_us = std::min(least_us, gather_us(gpu, machine, strategy, bytes, comm_multiprocessors));
  return least_us;
}

/// Within an hour copies of two GPUs reached 3.93 and 4.21 TB/s, likely by where their pages lay: the fastest
/// of some that lie elsewhere counts.
double least_copied_us(const GpuRank& gpu, std::int64_t bytes) {
  constexpr int places = 4;
  double least_us = std::numeric_limits<double>::infinity();
  std::vector<DeviceArray<std::byte>> all;
  for (int place = 0; place < places; ++place) {
    std::byte* const from = all.emplace_back(static_cast<std::size_t>(2 * bytes)).data();
    least_us = std::min(least_us, median_us(gpu, [&] {
                          FLASHOVERLAP_CUDA(cudaMemcpyAsync(from + bytes, from, bytes,
                                                            cudaMemcpyDeviceToDevice, gpu.stream()));
                        }));
  }
  gpu.barrier();
  return least_us;
}

}  // namespace

void measure_collectives(const GpuRank& gpu, Machine& machine) {
  // NCCL changes its protocol between 1 and 4 MiB, without peer access also below 1 MiB: there curves bend.
  const std::vector<std::int64_t> sizes{mebibyte / 4,     mebibyte * 3 / 8, mebibyte / 2,  mebibyte,
                                        mebibyte * 3 / 2, 2 * mebibyte,     3 * mebibyte,  4 * mebibyte,
                                        8 * mebibyte,     16 * mebibyte,    64 * mebibyte, 256 * mebibyte};
  const std::vector<std::int64_t> sizes_with_cap{mebibyte / 4, mebibyte,      4 * mebibyte,
                                                 8 * mebibyte, 16 * mebibyte, 64 * mebibyte};
  machine.collectives.clear();
  machine.capped.clear();
  machine.during_gemm.clear();
  machine.capped_for_callers.clear();
  machine.during_gemm_for_callers.clear();
  machine.collective_slowdowns.clear();
  const int ranks = gpu.ranks();
  const std::int64_t usual = 64 * mebibyte;
  {
    const MeasuredCollectives collectives(gpu, 0, sizes.back());
    for (const MessageKind kind : collective_kinds) {
      for (const std::int64_t bytes : sizes)
        add_point(machine.collectives[kind][ranks], bytes, collectives.alone_us(kind, bytes));
    }
    gpu.barrier();
  }
  const auto full_us = [&](MessageKind kind) {
    return machine.collective_microseconds(kind, ranks, static_cast<double>(usual));
  };
  bool is_enough = false;
  for (const int cap : machine.peer_access ? std::vector{4, 8, 16} : std::vector{2, 4, 8, 16}) {
    const MeasuredCollectives collectives(gpu, cap, usual);
    PartialGemm gemm(gpu, machine, machine.multiprocessors - cap);
    const auto measure = [&](MessageKind kind, SumsIn memory, Collectives& capped, Collectives& during_gemm) {
      for (const std::int64_t bytes : sizes_with_cap) {
        const double alone_us = collectives.alone_us(kind, bytes, memory);
        add_point(capped[kind][ranks], bytes, alone_us);
        add_point(during_gemm[kind][ranks], bytes,
                  collectives.during_us(gemm, kind, bytes, alone_us, memory));
      }
    };
    for (const MessageKind kind : collective_kinds)
      measure(kind, SumsIn::own, machine.capped[cap], machine.during_gemm[cap]);
    if (collectives.has_shared_memory()) {
      measure(MessageKind::all_reduce, SumsIn::callers, machine.capped_for_callers[cap],
              machine.during_gemm_for_callers[cap]);
    }
    constexpr double nearly = 1.1;
    if (!is_enough) {
      machine.comm_multiprocessors = cap;
      is_enough =
          collectives.alone_us(MessageKind::all_reduce, usual) < nearly * full_us(MessageKind::all_reduce);
    }
    for (const MessageKind kind : collective_kinds) {
      machine.collective_slowdowns[cap][kind] = gemm.slowdown([&](cudaStream_t stream) {
        for (double us = 0; us < gemm.sending_us(); us += full_us(kind))
          collectives.launch(kind, usual, stream);
      });
    }
    gpu.barrier();
  }
}

void measure_copies(const GpuRank& gpu, Machine& machine) {
  constexpr std::int64_t most = 256 * mebibyte;
  const int ranks = gpu.ranks();
  machine.memory_gigabytes_per_second = 2.0 * most / least_copied_us(gpu, most) / 1e3;
  machine.copy_engine.clear();
  machine.store.clear();
  machine.copy_slowdown = 1;
  machine.block_store_gigabytes_per_second = 0;
  if (!machine.peer_access) return;
  {
    const PeerCopies copies(gpu, most);
    gpu.barrier();
    for (std::int64_t bytes = mebibyte / 16; bytes <= most; bytes *= 4) {
      const double us = median_us(gpu, [&] { copies.copy(bytes, gpu.stream()); });
      add_point(machine.copy_engine[ranks], bytes, us / (ranks - 1));
    }
    PartialGemm gemm(gpu, machine, machine.multiprocessors);
    machine.copy_slowdown = gemm.slowdown([&](cudaStream_t stream) {
      const double once_us = (ranks - 1) * machine.copy_microseconds(ranks, 64 * mebibyte);
      for (double us = 0; us < gemm.sending_us(); us += once_us) copies.copy(64 * mebibyte, stream);
    });
    gpu.barrier();
  }
  // What stores take longer than copies in an operator, which has launches and signals besides.
  constexpr int copy_blocks = 16;
  for (const std::int64_t bytes : {mebibyte, 8 * mebibyte, 64 * mebibyte}) {
    const double longer_us = least_gather_us(gpu, machine, Strategy::store, bytes, copy_blocks) -
                             least_gather_us(gpu, machine, Strategy::copy, bytes, copy_blocks);
    const double copy_us = machine.copy_microseconds(ranks, static_cast<double>(bytes));
    add_point(machine.store[ranks], bytes, std::max(copy_us / 2, copy_us + longer_us / (ranks - 1)));
  }
  constexpr int few_blocks = 2;  // which do not fill the link
  constexpr std::int64_t large = 64 * mebibyte;
  machine.block_store_gigabytes_per_second =
      static_cast<double>((ranks - 1) * large) /
      (few_blocks * 1e3 * gather_us(gpu, machine, Strategy::store, large, few_blocks));
}

void measure_signals(const GpuRank& gpu, Machine& machine) {
  const DeviceArray<std::uint32_t> words(2);
  words.set_bytes(0);
  const DeviceArray<std::byte> memory(2 * mebibyte);
  const auto copy = [&] {
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(memory.data() + mebibyte, memory.data(), 4096, cudaMemcpyDeviceToDevice,
                                      gpu.stream()));
  };
  const auto signal = [&] {
    StreamMemoryBatch batch({.limit = std::chrono::seconds(1), .expired = words.data() + 1});
    batch.write(words.data(), 1);
    batch.wait_until_reached(words.data(), 1);
    batch.enqueue(gpu.stream());
  };
  constexpr int times = 16;
  const auto each_us = [&](const std::function<void()>& step) {
    return median_us(gpu,
                     [&] {
                       for (int time = 0; time < times; ++time) step();
                     }) /
           times;
  };
  machine.launch_microseconds = std::max(0.5, each_us(copy));
  machine.signal_microseconds = std::max(0.5, each_us(signal));
  gpu.barrier();
}

}  // namespace flashoverlap
