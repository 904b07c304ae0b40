#include "plan/matching.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/at.hpp"

namespace flashoverlap {
namespace {

std::int64_t elements(const Plan& plan, const Region& region) {
  return region.rows * plan.buffer(region.buffer).cols;
}

void match_collectives(std::span<const Plan> plans, Matching& matching) {
  std::vector<std::vector<std::int32_t>> by_rank;
  for (const Plan& plan : plans) {
    std::vector<std::int32_t>& indices = by_rank.emplace_back();
    std::vector<std::int32_t>& of = matching.collective_of.emplace_back(plan.messages.size(), none);
    for (std::size_t index = 0; index < plan.messages.size(); ++index) {
      if (!is_collective(plan.messages[index].kind)) continue;
      of[index] = static_cast<std::int32_t>(indices.size());
      indices.push_back(static_cast<std::int32_t>(index));
    }
  }
  for (std::size_t rank = 1; rank < plans.size(); ++rank) {
    if (by_rank[rank].size() != by_rank[0].size()) {
      matching.differences.push_back(fmt::format("rank {} calls {} collectives, rank 0 calls {}", rank,
                                                 by_rank[rank].size(), by_rank[0].size()));
      return;
    }
  }
  for (std::size_t call = 0; call < by_rank[0].size(); ++call) {
    std::vector<std::int32_t>& members = matching.collectives.emplace_back();
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      members.push_back(by_rank[rank][call]);
      const Message& first = at(plans[0].messages, members[0]);
      const Message& mine = at(plans[rank].messages, members[rank]);
      const std::int64_t expected = elements(plans[0], first.source);
      const std::int64_t actual = elements(plans[rank], mine.source);
      if (mine.kind != first.kind || actual != expected || mine.source.rows != first.source.rows) {
        matching.differences.push_back(
            fmt::format("collective {}: rank 0 calls {} of {} elements, rank {} calls {} of {}", call,
                        name(first.kind), expected, rank, name(mine.kind), actual));
      }
    }
  }
}

/// Calls send and receive(source, target, message index, region) for each part of each exchange, in order.
template <typename Send, typename Receive>
void for_each_part(std::span<const Plan> plans, const Send& send, const Receive& receive) {
  for (const Plan& plan : plans) {
    for (std::int32_t index = 0; index < std::ssize(plan.messages); ++index) {
      const Message& message = at(plan.messages, index);
      for (const Part& part : message.sends) send(plan.rank, part.peer, index, part.region);
      for (const Part& part : message.receives) receive(part.peer, plan.rank, index, part.region);
    }
  }
}

/// What one rank sends to another. There may be millions of transfers, so they are counted first.
struct Pair {
  std::size_t sends = 0;
  std::size_t receives = 0;
  std::size_t next_sent = 0;  // transfer
  std::size_t next_received = 0;
};

void match_exchanges(std::span<const Plan> plans, Matching& matching) {
  std::vector<Pair> pairs(plans.size() * plans.size());
  const auto pair_of = [&](std::int32_t source, std::int32_t target) -> Pair& {
    return pairs[static_cast<std::size_t>(source) * plans.size() + static_cast<std::size_t>(target)];
  };
  for_each_part(
      plans, [&](std::int32_t source, std::int32_t target, auto...) { ++pair_of(source, target).sends; },
      [&](std::int32_t source, std::int32_t target, auto...) { ++pair_of(source, target).receives; });
  std::size_t places = 0;
  for (Pair& pair : pairs) {
    pair.next_sent = pair.next_received = places;
    places += std::max(pair.sends, pair.receives);
  }
  matching.transfers.resize(places);
  for_each_part(
      plans,
      [&](std::int32_t source, std::int32_t target, std::int32_t message, const Region& region) {
        Transfer& transfer = matching.transfers[pair_of(source, target).next_sent++];
        transfer.source = static_cast<std::int8_t>(source);
        transfer.target = static_cast<std::int8_t>(target);
        transfer.send_message = message;
        transfer.from_buffer = region.buffer;
        transfer.from_row = region.row;
        transfer.sent_rows = region.rows;
      },
      [&](std::int32_t source, std::int32_t target, std::int32_t message, const Region& region) {
        Transfer& transfer = matching.transfers[pair_of(source, target).next_received++];
        transfer.receive_message = message;
        transfer.to_buffer = region.buffer;
        transfer.to_row = region.row;
        transfer.received_rows = region.rows;
      });

  std::size_t first = 0;
  for (std::size_t index = 0; index < pairs.size(); ++index) {
    const std::size_t sends = pairs[index].sends;
    const std::size_t receives = pairs[index].receives;
    const std::size_t source = index / plans.size();
    const std::size_t target = index % plans.size();
    if (sends != receives) {
      matching.differences.push_back(fmt::format("rank {} sends {} times to rank {}, which receives {} times",
                                                 source, sends, target, receives));
    }
    for (std::size_t transfer = 0; sends == receives && transfer < sends; ++transfer) {
      const Transfer& each = matching.transfers[first + transfer];
      const std::int64_t sent = elements(plans[source], each.from());
      const std::int64_t received = elements(plans[target], each.to());
      if (sent == received && each.sent_rows == each.received_rows) continue;
      matching.differences.push_back(fmt::format(
          "transfer {} from rank {} (message {}) to rank {} (message {}): {} rows, {} elements sent, {} "
          "rows, {} elements received",
          transfer, source, each.send_message, target, each.receive_message, each.sent_rows, sent,
          each.received_rows, received));
    }
    first += std::max(sends, receives);
  }
}

}  // namespace

Matching match_messages(std::span<const Plan> plans) {
  Matching matching;
  match_collectives(plans, matching);
  match_exchanges(plans, matching);
  return matching;
}

}  // namespace flashoverlap
