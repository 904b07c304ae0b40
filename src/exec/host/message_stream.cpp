#include "exec/host/message_stream.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "flashoverlap/error.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

std::string describe(int rank, std::size_t index, const Message& message) {
  const std::string step = fmt::format("rank {}, message {} ({})", rank, index, name(message.kind));
  return message.group == none ? step : fmt::format("{} of group {}", step, message.group);
}

void wait_for_tiles(HostRank& own, const std::string& step) {
  HostCounters& tiles = own.tiles_done();
  if (!tiles.wait(0)) {
    throw WaitExpired(
        fmt::format("{} waits for all tiles, found {} of {}: no rank has done anything for {} ms", step,
                    tiles.value(0), tiles.target(0), tiles.wait_limit().count()));
  }
}

void copy(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  const Plan& plan = ranks.at(rank).plan();
  const std::size_t source_bytes = ranks.at(rank).bytes_of(message.source);
  const std::size_t destination_bytes = ranks.at(message.peer).bytes_of(message.destination);
  const Matrix& source = ranks.at(rank).readable(message.source.buffer);
  Matrix& destination = ranks.at(message.peer).writable(message.destination.buffer);
  if (source_bytes != destination_bytes || source.cols() != destination.cols()) {
    throw Error(fmt::format("{}: source has {} bytes in rows of {}, destination {} in rows of {}", step,
                            source_bytes, source.row_bytes(), destination_bytes, destination.row_bytes()));
  }
  const std::int64_t element = size_of(plan.problem.data_type);
  const std::int64_t first = message.col * element;
  const std::int64_t width = moved_cols(plan, message) * element;
  for (std::int64_t row = 0; row < message.source.rows; ++row) {
    std::copy_n(source.row(message.source.row + row) + first, width,
                destination.row(message.destination.row + row) + first);
  }
}

void exchange(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  HostRank& own = ranks.at(rank);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> received;
  std::vector<InProcessCommunicator::Send> sends;
  std::vector<InProcessCommunicator::Receive> receives;
  for (const Part& part : message.sends)
    sends.push_back({part.peer, sent.emplace_back(own.read(part.region))});
  for (const Part& part : message.receives)
    receives.push_back({part.peer, received.emplace_back(own.bytes_of(part.region))});
  ranks.communicator().exchange(rank, step, sends, receives);
  for (std::size_t part = 0; part < received.size(); ++part)
    own.write(message.receives[part].region, received[part]);
}

/// `call(source, destination)`, on memory without padding.
template <typename Call>
void collective(HostRank& own, const Message& message, const Call& call) {
  const std::vector<std::byte> source = own.read(message.source);
  std::vector<std::byte> destination(own.bytes_of(message.destination));
  call(source, destination);
  own.write(message.destination, destination);
}

void transfer(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  HostRank& own = ranks.at(rank);
  InProcessCommunicator& communicator = ranks.communicator();
  switch (message.kind) {
    case MessageKind::all_reduce: {
      std::vector<std::byte> data = own.read(message.source);
      communicator.all_reduce(rank, step, data);
      return own.write(message.source, data);
    }
    case MessageKind::reduce_scatter:
      return collective(own, message, [&](auto& source, auto& destination) {
        communicator.reduce_scatter(rank, step, source, destination);
      });
    case MessageKind::all_gather:
      return collective(own, message, [&](auto& source, auto& destination) {
        communicator.all_gather(rank, step, source, destination);
      });
    case MessageKind::exchange: return exchange(ranks, rank, message, step);
    case MessageKind::copy:
    case MessageKind::store: return copy(ranks, rank, message, step);
    case MessageKind::signal: return;
  }
}

}  // namespace

void run_message(HostRanks& ranks, int rank, std::size_t index) {
  HostRank& own = ranks.at(rank);
  const Message& message = own.plan().messages[index];
  std::string step = describe(rank, index, message);

  ranks.throw_if_stopped();
  ranks.sleep(rank, DelayPoint::message_begin, index);
  if (message.after_tiles) wait_for_tiles(own, step);
  for (const Wait& wait : message.waits)
    ranks.wait(rank, wait.counter, [&]() -> const std::string& { return step; });
  for (const Wait& wait : message.waits) {
    if (wait.reset) own.counters().reset(wait.counter);
  }
  transfer(ranks, rank, message, step);
  ranks.sleep(rank, DelayPoint::message_raise, index);
  for (const Raise& raise : message.raises) ranks.raise(raise, 1);
  ranks.progress().step();
}

}  // namespace flashoverlap
