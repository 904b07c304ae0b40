#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

inline bool is_collective(MessageKind kind) {
  return kind == MessageKind::all_reduce || kind == MessageKind::reduce_scatter ||
         kind == MessageKind::all_gather;
}

/// A send and its receive.
struct Transfer {
  std::int32_t send_message = 0;
  std::int32_t receive_message = 0;
  Region from;
  Region to;
  std::int16_t source = 0;  ///< ranks
  std::int16_t target = 0;
};

/// Which messages of different ranks belong together: the i-th collective of every rank, and the i-th send
/// from one rank to another and the i-th receive there.
struct Matching {
  std::vector<std::vector<std::int32_t>> collectives;    ///< [i][rank] message index
  std::vector<std::vector<std::int32_t>> collective_of;  ///< [rank][message] i, or `none`
  std::vector<Transfer> transfers;                       ///< from one rank to another together
  /// One line for each difference between ranks in kind, size or number; empty: all messages match.
  std::vector<std::string> differences;
};

/// Which transfers each message of each rank takes part in.
class TransfersOfMessages {
 public:
  TransfersOfMessages(std::span<const Plan> plans, const std::vector<Transfer>& transfers);

  /// Indices into the list of transfers, in its order.
  std::span<const std::uint32_t> of(std::int32_t rank, std::size_t message) const {
    const Lists& lists = at(lists_, rank);
    return std::span(lists.indices)
        .subspan(lists.first[message], lists.first[message + 1] - lists.first[message]);
  }

 private:
  /// Those of message i are indices[first[i]] to indices[first[i + 1] - 1].
  struct Lists {
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> indices;
  };

  std::vector<Lists> lists_;
};

Matching match_messages(std::span<const Plan> plans);

}  // namespace flashoverlap
