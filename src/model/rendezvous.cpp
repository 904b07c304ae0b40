#include "model/rendezvous.hpp"

#include "flashoverlap/error.hpp"
#include "plan/matching.hpp"

namespace flashoverlap {

std::vector<std::vector<std::vector<MessagePlace>>> find_partners(std::span<const Plan> plans) {
  const Matching matching = match_messages(plans);
  if (!matching.differences.empty()) throw InvalidPlan(matching.differences.front());

  std::vector<std::vector<std::vector<MessagePlace>>> partners;
  for (const Plan& plan : plans) partners.emplace_back(plan.messages.size());
  const auto join = [&](std::size_t rank, std::int32_t message, std::size_t other_rank, std::int32_t other) {
    partners[rank][static_cast<std::size_t>(message)].push_back(
        {static_cast<std::int32_t>(other_rank), static_cast<std::size_t>(other)});
  };
  for (const auto& members : matching.collectives) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      for (std::size_t other = 0; other < members.size(); ++other) {
        if (other != rank) join(rank, members[rank], other, members[other]);
      }
    }
  }
  for (const Transfer& transfer : matching.transfers) {
    if (transfer.source == transfer.target) continue;
    const auto source = static_cast<std::size_t>(transfer.source);
    const auto target = static_cast<std::size_t>(transfer.target);
    join(source, transfer.send_message, target, transfer.receive_message);
    join(target, transfer.receive_message, source, transfer.send_message);
  }
  return partners;
}

}  // namespace flashoverlap
