#include "plan/matching.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

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

struct Side {
  std::int32_t message;
  Region region;
};

void match_exchanges(std::span<const Plan> plans, Matching& matching) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::vector<Side>, std::vector<Side>>> pairs;
  for (const Plan& plan : plans) {
    matching.transfers_of.emplace_back(plan.messages.size());
    for (std::int32_t index = 0; index < std::ssize(plan.messages); ++index) {
      const Message& message = at(plan.messages, index);
      for (const Part& part : message.sends)
        pairs[{plan.rank, part.peer}].first.push_back({index, part.region});
      for (const Part& part : message.receives)
        pairs[{part.peer, plan.rank}].second.push_back({index, part.region});
    }
  }
  for (const auto& [ranks, sides] : pairs) {
    const auto [source, target] = ranks;
    const auto& [sends, receives] = sides;
    if (sends.size() != receives.size()) {
      matching.differences.push_back(fmt::format("rank {} sends {} times to rank {}, which receives {} times",
                                                 source, sends.size(), target, receives.size()));
      continue;
    }
    for (std::size_t index = 0; index < sends.size(); ++index) {
      const auto& [send, from] = sends[index];
      const auto& [receive, to] = receives[index];
      const std::int64_t sent = elements(at(plans, source), from);
      const std::int64_t received = elements(at(plans, target), to);
      if (sent != received || from.rows != to.rows) {
        matching.differences.push_back(fmt::format(
            "transfer {} from rank {} (message {}) to rank {} (message {}): {} rows, {} elements sent, {} "
            "rows, {} elements received",
            index, source, send, target, receive, from.rows, sent, to.rows, received));
        continue;
      }
      const std::size_t transfer = matching.transfers.size();
      matching.transfers.push_back({source, target, send, receive, from, to});
      at(at(matching.transfers_of, source), send).push_back(transfer);
      if (source != target || send != receive)
        at(at(matching.transfers_of, target), receive).push_back(transfer);
    }
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
