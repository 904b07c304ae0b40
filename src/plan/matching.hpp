#pragma once

#include <cstdint>
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
  std::int32_t send_message = 0;
  std::int32_t receive_message = 0;
  std::int32_t from_row = 0;
  std::int32_t to_row = 0;
  std::int32_t sent_rows = 0;
  std::int32_t received_rows = 0;  ///< as many, unless they differ
  std::int8_t source = 0;          ///< ranks
  std::int8_t target = 0;
  BufferRole from_buffer{};
  BufferRole to_buffer{};

  Region from() const { return {from_buffer, from_row, sent_rows}; }
  Region to() const { return {to_buffer, to_row, received_rows}; }
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

Matching match_messages(std::span<const Plan> plans);

}  // namespace flashoverlap
