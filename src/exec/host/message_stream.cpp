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
    throw WaitExpired(fmt::format("{}: expected all {} tiles done, found {} after {} ms", step,
                                  tiles.target(0), tiles.value(0), tiles.wait_limit().count()));
  }
}

void copy(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  const Plan& plan = ranks.at(rank).plan();
  const auto source = ranks.at(rank).readable(message.source);
  const auto destination = ranks.at(message.peer).writable(message.destination);
  if (source.size() != destination.size()) {
    throw Error(
        fmt::format("{}: source has {} bytes, destination {}", step, source.size(), destination.size()));
  }
  const auto element = static_cast<std::size_t>(size_of(plan.problem.data_type));
  const std::size_t pitch = source.size() / static_cast<std::size_t>(message.source.rows);
  const std::size_t first = static_cast<std::size_t>(message.col) * element;
  const std::size_t width = static_cast<std::size_t>(moved_cols(plan, message)) * element;
  for (std::size_t row = first; row < source.size(); row += pitch)
    std::ranges::copy(source.subspan(row, width), destination.subspan(row).begin());
}

void exchange(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  HostRank& own = ranks.at(rank);
  std::vector<InProcessCommunicator::Send> sends;
  std::vector<InProcessCommunicator::Receive> receives;
  for (const Part& part : message.sends) sends.push_back({part.peer, own.readable(part.region)});
  for (const Part& part : message.receives) receives.push_back({part.peer, own.writable(part.region)});
  ranks.communicator().exchange(rank, step, sends, receives);
}

void transfer(HostRanks& ranks, int rank, const Message& message, const std::string& step) {
  HostRank& own = ranks.at(rank);
  switch (message.kind) {
    case MessageKind::all_reduce:
      return ranks.communicator().all_reduce(rank, step, own.writable(message.source));
    case MessageKind::reduce_scatter:
      return ranks.communicator().reduce_scatter(rank, step, own.readable(message.source),
                                                 own.writable(message.destination));
    case MessageKind::all_gather:
      return ranks.communicator().all_gather(rank, step, own.readable(message.source),
                                             own.writable(message.destination));
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
}

}  // namespace flashoverlap
