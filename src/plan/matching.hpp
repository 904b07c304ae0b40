#pragma once

#include <span>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

inline bool is_collective(MessageKind kind) {
  return kind == MessageKind::all_reduce || kind == MessageKind::reduce_scatter ||
         kind == MessageKind::all_gather;
}

/// A send and its receive.
struct Transfer {
  std::int32_t source = 0;  ///< ranks
  std::int32_t target = 0;
  std::int32_t send_message = 0;
  std::int32_t receive_message = 0;
  Region from;
  Region to;
};

/// Which messages of different ranks belong together: the i-th collective of every rank, and the i-th send
/// from one rank to another and the i-th receive there.
struct Matching {
  std::vector<std::vector<std::int32_t>> collectives;    ///< [i][rank] message index
  std::vector<std::vector<std::int32_t>> collective_of;  ///< [rank][message] i, or `none`
  std::vector<Transfer> transfers;
  /// Indices into `transfers` of a rank's message.
  std::span<const std::uint32_t> transfers_of(std::int32_t rank, std::size_t message) const;

  // Of each rank, indices into `transfers` in the order of its messages, and where each message's begin.
  std::vector<std::vector<std::uint32_t>> transfer_indices;
  std::vector<std::vector<std::uint32_t>> first_indices;
  /// One line for each difference between ranks in kind, size or number; empty: all messages match.
  std::vector<std::string> differences;
};

Matching match_messages(std::span<const Plan> plans);

}  // namespace flashoverlap
