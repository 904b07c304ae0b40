#include "comm/in_process.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "data_type/elements.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

// Elements that are summed at a time: they stay in the first-level cache.
constexpr std::size_t sum_block = 1024;

void copy_bytes(std::span<const std::byte> source, std::span<std::byte> destination) {
  std::ranges::copy(source, destination.begin());
}

}  // namespace

InProcessCommunicator::InProcessCommunicator(int ranks, DataType data_type,
                                             std::chrono::milliseconds wait_limit,
                                             const RunProgress* progress)
    : data_type_(data_type),
      waiting_(wait_limit, progress),
      calls_(static_cast<std::size_t>(ranks)),
      unmatched_parts_(static_cast<std::size_t>(ranks)) {}

void InProcessCommunicator::all_reduce(int rank, const std::string& caller, std::span<std::byte> data) {
  join(rank, {MessageKind::all_reduce, caller, data, data});
}

void InProcessCommunicator::reduce_scatter(int rank, const std::string& caller,
                                           std::span<const std::byte> source,
                                           std::span<std::byte> destination) {
  join(rank, {MessageKind::reduce_scatter, caller, source, destination});
}

void InProcessCommunicator::all_gather(int rank, const std::string& caller, std::span<const std::byte> source,
                                       std::span<std::byte> destination) {
  join(rank, {MessageKind::all_gather, caller, source, destination});
}

void InProcessCommunicator::restart() {
  for (auto& call : calls_) call.reset();
  joined_ = 0;
  channels_.clear();
  std::ranges::fill(unmatched_parts_, 0U);
  waiting_.restart();
}

template <typename Work>
void InProcessCommunicator::take_part(const Work& work) {
  auto lock = waiting_.lock();
  waiting_.throw_if_stopped();
  try {
    work(lock);
  } catch (...) {
    waiting_.stop_others();
    throw;
  }
}

void InProcessCommunicator::join(int rank, Call call) {
  take_part([&](std::unique_lock<std::mutex>& lock) {
    calls_.at(static_cast<std::size_t>(rank)) = std::move(call);
    if (++joined_ < calls_.size()) {
      const std::uint64_t done_before = collectives_done_;
      if (!waiting_.wait(lock, [&] { return collectives_done_ != done_before; })) {
        throw WaitExpired(fmt::format("{}: {} after {} ms", calls_[static_cast<std::size_t>(rank)]->caller,
                                      describe_missing_ranks(), waiting_.limit().count()));
      }
      return;
    }
    require_agreement();
    perform_collective();
    for (auto& joined_call : calls_) joined_call.reset();
    joined_ = 0;
    ++collectives_done_;
    waiting_.notify();
  });
}

void InProcessCommunicator::require_agreement() const {
  const Call& first = *calls_.front();
  for (const auto& call : calls_) {
    if (call->kind != first.kind || call->source.size() != first.source.size() ||
        call->destination.size() != first.destination.size()) {
      throw Error(fmt::format("{} ({} bytes to {}) meets {} ({} bytes to {})", first.caller,
                              first.source.size(), first.destination.size(), call->caller,
                              call->source.size(), call->destination.size()));
    }
  }
  const auto ranks = calls_.size();
  const std::size_t source = first.source.size();
  const std::size_t destination = first.destination.size();
  const bool fits = first.kind == MessageKind::reduce_scatter ? source == ranks * destination
                    : first.kind == MessageKind::all_gather   ? destination == ranks * source
                                                              : destination == source;
  if (!fits) {
    throw Error(
        fmt::format("{}: {} bytes to {} do not fit {} ranks", first.caller, source, destination, ranks));
  }
}

void InProcessCommunicator::perform_collective() const {
  const MessageKind kind = calls_.front()->kind;
  if (kind == MessageKind::all_gather) {
    for (const auto& receiver : calls_) {
      std::size_t offset = 0;
      for (const auto& sender : calls_) {
        copy_bytes(sender->source, receiver->destination.subspan(offset));
        offset += sender->source.size();
      }
    }
    return;
  }
  const std::vector<std::byte> sum = sum_of_sources();
  std::size_t offset = 0;
  for (const auto& call : calls_) {
    copy_bytes(std::span(sum).subspan(offset, call->destination.size()), call->destination);
    if (kind == MessageKind::reduce_scatter) offset += call->destination.size();
  }
}

std::vector<std::byte> InProcessCommunicator::sum_of_sources() const {
  std::vector<std::byte> result(calls_.front()->source.size());
  std::vector<float> sum_values(sum_block);
  std::vector<float> rank_values(sum_block);
  const auto element_size = static_cast<std::size_t>(size_of(data_type_));
  const std::size_t elements = result.size() / element_size;
  for (std::size_t first = 0; first < elements; first += sum_block) {
    const auto sum = std::span(sum_values).first(std::min(sum_block, elements - first));
    const auto values = std::span(rank_values).first(sum.size());
    std::ranges::fill(sum, 0.0f);
    for (const auto& call : calls_) {
      read_elements(data_type_, call->source.data() + first * element_size, values);
      std::ranges::transform(sum, values, sum.begin(), std::plus());
    }
    write_elements(data_type_, sum, result.data() + first * element_size);
  }
  return result;
}

void InProcessCommunicator::exchange(int rank, const std::string& caller, std::span<const Send> sends,
                                     std::span<const Receive> receives) {
  take_part([&](std::unique_lock<std::mutex>& lock) {
    std::size_t& unmatched = unmatched_parts_.at(static_cast<std::size_t>(rank));
    unmatched = sends.size() + receives.size();
    for (const Send& send : sends) {
      channels_[{rank, send.peer}].sends.push_back(send.data);
      match(rank, send.peer, caller);
    }
    for (const Receive& receive : receives) {
      channels_[{receive.peer, rank}].receives.push_back(receive.data);
      match(receive.peer, rank, caller);
    }
    waiting_.notify();
    if (!waiting_.wait(lock, [&] { return unmatched == 0; })) {
      throw WaitExpired(
          fmt::format("{}: {} after {} ms", caller, describe_missing_peers(rank), waiting_.limit().count()));
    }
  });
}

void InProcessCommunicator::match(int source, int destination, const std::string& caller) {
  Channel& channel = channels_[{source, destination}];
  if (channel.sends.empty() || channel.receives.empty()) return;
  const auto sent = channel.sends.front();
  const auto received = channel.receives.front();
  if (sent.size() != received.size()) {
    throw Error(fmt::format("{}: rank {} sends {} bytes to rank {}, which receives {}", caller, source,
                            sent.size(), destination, received.size()));
  }
  copy_bytes(sent, received);
  channel.sends.erase(channel.sends.begin());
  channel.receives.erase(channel.receives.begin());
  --unmatched_parts_.at(static_cast<std::size_t>(source));
  --unmatched_parts_.at(static_cast<std::size_t>(destination));
}

std::string InProcessCommunicator::describe_missing_ranks() const {
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    if (!calls_[rank]) missing.push_back(rank);
  }
  return fmt::format("rank {} missing", fmt::join(missing, ", "));
}

std::string InProcessCommunicator::describe_missing_peers(int rank) const {
  std::set<int> missing;
  for (const auto& [pair, channel] : channels_) {
    const auto [source, destination] = pair;
    if (source == rank && !channel.sends.empty()) missing.insert(destination);
    if (destination == rank && !channel.receives.empty()) missing.insert(source);
  }
  return fmt::format("no counterpart from rank {}", fmt::join(missing, ", "));
}

}  // namespace flashoverlap
