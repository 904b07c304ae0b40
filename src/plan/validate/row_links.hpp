#pragma once

#include <span>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"
#include "plan/matching.hpp"

namespace flashoverlap {

/// A region whose rows become the rows of another, in order.
struct RowLink {
  std::int32_t from_rank;
  std::int32_t to_rank;
  Region from;
  Region to;
};

/// Calls visit(RowLink) for all that one collective links.
template <typename Visit>
void for_each_row_link(std::span<const Plan> plans, std::span<const std::int32_t> members,
                       const Visit& visit) {
  const auto message = [&](std::int32_t rank) -> const Message& {
    return at(at(plans, rank).messages, at(members, rank));
  };
  const Message& first = message(0);
  for (std::int32_t rank = 0; rank < std::ssize(plans); ++rank) {
    const Message& mine = message(rank);
    if (first.kind == MessageKind::all_reduce) {
      visit(RowLink{0, rank, first.source, mine.source});
      continue;
    }
    for (std::int32_t peer = 0; peer < std::ssize(plans); ++peer) {
      Region source = mine.source;
      Region destination = message(peer).destination;
      if (first.kind == MessageKind::reduce_scatter) {
        source.rows = destination.rows;
        source.row += peer * source.rows;
      } else {
        destination.rows = source.rows;
        destination.row += rank * destination.rows;
      }
      visit(RowLink{rank, peer, source, destination});
    }
  }
}

/// Calls visit(RowLink) for all that messages link. There may be millions.
template <typename Visit>
void for_each_row_link(std::span<const Plan> plans, const Matching& matching, const Visit& visit) {
  for (const Transfer& transfer : matching.transfers)
    visit(RowLink{transfer.source, transfer.target, transfer.from(), transfer.to()});
  for (const Plan& plan : plans) {
    for (const Message& each : plan.messages) {
      if (each.kind == MessageKind::copy || each.kind == MessageKind::store)
        visit(RowLink{plan.rank, each.peer, each.source, each.destination});
    }
  }
  for (const auto& members : matching.collectives)
    for_each_row_link(plans, std::span<const std::int32_t>(members), visit);
}

}  // namespace flashoverlap
