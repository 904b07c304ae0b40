// Plans run by the emulator: the kernels of all ranks, and next to each rank's its messages, at the same
// time. Run follows run; no rank waits for the others in between.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "flashoverlap/host_result.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/strategies.hpp"
#include "support/emulator/emulated_gemm.hpp"

namespace flashoverlap::testing {

class EmulatedRun {
 public:
  /// `instance`: place of the kernel among the family's.
  EmulatedRun(const EmulatedFamily& family, std::size_t instance, const std::vector<Plan>& plans, int runs,
              std::uint64_t seed)
      : plans_(plans), runs_(runs), seed_(seed), ranks_(plans, seed), launch_(seed) {
    ranks_.allow(launch_);
    for (const Plan& plan : plans_) {
      Stream& stream = streams_.emplace_back();
      const DividedMessages divided = divide_messages(plans_, plan.rank);
      // A wait that expires is a failure.
      const GemmOptions options{.wait_limit_ns = 2'000'000'000, .messages = divided.by_kernel};
      stream.gemm = family.gemm(instance, plan, ranks_, seed, options);
      stream.gemm->allow(launch_);
      stream.messages = divided.streamed;
    }
  }

  /// A rank's operand in a run.
  Matrix operand(std::int32_t rank, BufferRole role, int run) const {
    const Buffer& buffer = plans_[place(rank)].buffer(role);
    const auto number =
        static_cast<std::uint64_t>((run * std::ssize(plans_) + rank) * 2 + (role == BufferRole::a ? 0 : 1));
    return random_matrix(plans_[place(rank)].problem.data_type, buffer.rows, buffer.cols,
                         seed_ + 1000 + number);
  }
  /// What it found in `out` after a run.
  const Matrix& result(std::int32_t rank, int run) const {
    return streams_[place(rank)].results.at(place(run));
  }

  /// What goes wrong.
  std::vector<std::string> run() {
    std::vector<emulator::Grid> grids;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      const emulator::Grid grid = streams_[rank].gemm->grid();
      streams_[rank].threads = grid.blocks * grid.threads;
      if (grid.blocks > 0) {
        grids.push_back(grid);
        grids.back().kernel = [this, rank, kernel = grid.kernel] { launch_kernel(streams_[rank], kernel); };
      }
      grids.push_back({.blocks = 1, .kernel = [this, rank] {
                         if (emulator::thread_index.x == 0) run_stream(static_cast<std::int32_t>(rank));
                       }});
    }
    launch_.run(grids);
    std::vector<std::string> errors = launch_.errors();
    for (const Plan& plan : plans_) {
      const ExpiredWait& expired = streams_[place(plan.rank)].gemm->expired;
      if (expired.happened != 0)
        errors.push_back(fmt::format("tile {} of rank {} waited too long", expired.tile, plan.rank));
      if (!streams_[place(plan.rank)].gemm->counts_are_zero())
        errors.push_back(fmt::format("the kernel of rank {} leaves counts that are not zero", plan.rank));
      for (std::size_t counter = 0; counter < plan.counters.size(); ++counter) {
        if (ranks_.counters(plan.rank)[counter] != 0)
          errors.push_back(fmt::format("counter {} of rank {} is not zero", counter, plan.rank));
      }
    }
    return errors;
  }

 private:
  struct Stream {
    std::unique_ptr<EmulatedGemm> gemm;
    std::vector<Message> messages;
    int threads = 0;
    int begun = 0;                                 // runs
    int threads_ended = 0;                         // since the beginning
    std::vector<emulator::Place> threads_waiting;  // for the next run
    std::vector<emulator::Place> stream_waiting;   // for threads
    std::size_t collectives = 0;
    std::vector<Matrix> results;  // by run
  };

  /// What one rank brings to a collective.
  struct Collective {
    std::map<std::int32_t, const Message*> joined;
    bool done = false;
  };

  static std::size_t place(std::int32_t rank) { return static_cast<std::size_t>(rank); }

  /// By every thread of a rank's kernel.
  void launch_kernel(Stream& stream, const std::function<void()>& kernel) {
    for (int run = 0; run < runs_; ++run) {
      if (stream.begun == run) sleep(stream.threads_waiting);
      kernel();
      launch_.finish();
      if (++stream.threads_ended == stream.threads * stream.begun) launch_.wake(stream.stream_waiting);
    }
  }

  void run_stream(std::int32_t rank) {
    const Plan& plan = plans_[place(rank)];
    Stream& stream = streams_[place(rank)];
    for (int run = 0; run < runs_; ++run) {
      fill(rank, run);
      ++stream.begun;
      launch_.wake(stream.threads_waiting);
      for (const Message& message : stream.messages) {
        if (message.after_tiles) await_tiles(stream);
        for (const Wait& wait : message.waits) {
          const auto target = static_cast<std::uint32_t>(plan.counters[place(wait.counter)].target);
          await([&] { return counter(rank, wait.counter) >= target; });
        }
        for (const Wait& wait : message.waits) {
          if (wait.reset) counter(rank, wait.counter) = 0;
        }
        transfer(rank, message);
        for (const Raise& raise : message.raises) ++counter(raise.rank, raise.counter);
      }
      await_tiles(stream);
      stream.results.push_back(ranks_.result(rank, BufferRole::out));
    }
  }

  /// New operands in the same memory; what the run writes is torn.
  void fill(std::int32_t rank, int run) {
    for (const BufferRole role :
         {BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered})
      ranks_.result(rank, role).poison();
    for (const BufferRole role : {BufferRole::a, BufferRole::b}) {
      const Matrix values = operand(rank, role, run);
      for (std::int64_t row = 0; row < values.rows(); ++row)
        std::memcpy(ranks_.result(rank, role).row(row), values.row(row),
                    static_cast<std::size_t>(values.row_bytes()));
    }
    const Plan& plan = plans_[place(rank)];
    if (sums_after_gemm(plan.schedule)) multiply(plan, ranks_.result(rank, BufferRole::staging));
  }

  /// The GEMM that comes before the tiles.
  void multiply(const Plan& plan, Matrix& product) {
    const auto read = [&](BufferRole role, OperandLayout layout) {
      const bool transposes = layout == OperandLayout::row_contiguous;
      const Matrix& operand = ranks_.result(plan.rank, role);
      const auto rows = static_cast<std::size_t>(transposes ? operand.cols() : operand.rows());
      Rows values(rows, std::vector<float>(static_cast<std::size_t>(plan.problem.k)));
      std::vector<float> line(static_cast<std::size_t>(operand.cols()));
      for (std::int32_t row = 0; row < operand.rows(); ++row) {
        operand.read(row, 0, line);
        for (std::size_t col = 0; col < line.size(); ++col)
          (transposes ? values[col][place(row)] : values[place(row)][col]) = line[col];
      }
      return values;
    };
    const Rows a = read(BufferRole::a, plan.problem.a_layout);
    const Rows b = read(BufferRole::b, plan.problem.b_layout);
    std::vector<float> values(b.size());
    for (std::int32_t row = 0; row < std::ssize(a); ++row) {
      for (std::size_t col = 0; col < b.size(); ++col)
        values[col] = std::inner_product(b[col].begin(), b[col].end(), a[place(row)].begin(), 0.0F);
      product.write(row, 0, values);
    }
  }

  void sleep(std::vector<emulator::Place>& waiting) {
    waiting.push_back(launch_.place());
    launch_.sleep();
  }

  void await_tiles(Stream& stream) {
    if (stream.threads_ended < stream.threads * stream.begun) sleep(stream.stream_waiting);
  }

  /// Others go on meanwhile; not for ever.
  template <typename Condition>
  void await(const Condition& condition) {
    constexpr int most = 20'000'000;
    for (int left = most; !condition(); --left) {
      if (left == 0) return launch_.error("a rank waits for others for ever");
      launch_.poll(nullptr);
    }
  }

  std::uint32_t& counter(std::int32_t rank, std::int32_t index) {
    return ranks_.counters(rank)[place(index)];
  }

  void transfer(std::int32_t rank, const Message& message) {
    switch (message.kind) {
      case MessageKind::signal: return;
      case MessageKind::copy:
      case MessageKind::store:
        return write(message.peer, message.destination, message, read(rank, message.source, message));
      case MessageKind::exchange: return exchange(rank, message);
      case MessageKind::all_reduce:
      case MessageKind::all_gather:
      case MessageKind::reduce_scatter: return join_collective(rank, message);
    }
  }

  using Rows = std::vector<std::vector<float>>;

  Rows read(std::int32_t rank, const Region& region, const Message& columns = {}) {
    const Matrix& matrix = ranks_.result(rank, region.buffer);
    const std::int64_t cols = columns.cols == none ? matrix.cols() : columns.cols;
    Rows rows(place(region.rows), std::vector<float>(static_cast<std::size_t>(cols)));
    for (std::int32_t row = 0; row < region.rows; ++row)
      matrix.read(region.row + row, columns.col, rows[place(row)]);
    return rows;
  }

  void write(std::int32_t rank, const Region& region, const Message& columns, const Rows& rows) {
    Matrix& matrix = ranks_.result(rank, region.buffer);
    for (std::int32_t row = 0; row < region.rows; ++row)
      matrix.write(region.row + row, columns.col, rows[place(row)]);
  }

  void exchange(std::int32_t rank, const Message& message) {
    for (const Part& part : message.sends) channels_[{rank, part.peer}].push_back(read(rank, part.region));
    for (const Part& part : message.receives) {
      std::deque<Rows>& channel = channels_[{part.peer, rank}];
      await([&] { return !channel.empty(); });
      write(rank, part.region, {}, channel.front());
      channel.pop_front();
    }
  }

  /// The last rank to join moves the data of all.
  void join_collective(std::int32_t rank, const Message& message) {
    Collective& collective = collectives_[streams_[place(rank)].collectives++];
    collective.joined[rank] = &message;
    if (collective.joined.size() == plans_.size()) {
      perform(collective);
      collective.done = true;
    }
    await([&] { return collective.done; });
  }

  void perform(const Collective& collective) {
    std::vector<Rows> sources;
    for (const auto& [rank, message] : collective.joined) sources.push_back(read(rank, message->source));
    for (const auto& [rank, message] : collective.joined) {
      const auto rows = static_cast<std::size_t>(message->destination.rows);
      Rows result;
      if (message->kind == MessageKind::all_gather) {
        for (const Rows& source : sources) result.insert(result.end(), source.begin(), source.end());
      } else {
        const std::size_t first = message->kind == MessageKind::reduce_scatter ? place(rank) * rows : 0;
        result.assign(sources[0].begin() + static_cast<std::ptrdiff_t>(first),
                      sources[0].begin() + static_cast<std::ptrdiff_t>(first + rows));
        for (std::size_t source = 1; source < sources.size(); ++source) {
          for (std::size_t row = 0; row < rows; ++row)
            std::ranges::transform(result[row], sources[source][first + row], result[row].begin(),
                                   std::plus());
        }
      }
      write(rank, message->destination, {}, result);
    }
  }

  const std::vector<Plan>& plans_;
  int runs_;
  std::uint64_t seed_;
  EmulatedRanks ranks_;
  emulator::Launch launch_;
  std::vector<Stream> streams_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<Rows>> channels_;  // from, to
  std::map<std::size_t, Collective> collectives_;                               // by call
};

}  // namespace flashoverlap::testing
