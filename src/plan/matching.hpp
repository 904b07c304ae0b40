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
  std::vector<std::vector<std::vector<std::size_t>>>
      transfers_of;  ///< [rank][message] indices into `transfers`
  /// One line for each difference between ranks in kind, size or number; empty: all messages match.
  std::vector<std::string> differences;
};

Matching match_messages(std::span<const Plan> plans);

}  // namespace flashoverlap
