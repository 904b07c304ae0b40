#include "plan/store_rules.hpp"

#include <algorithm>

#include "plan/at.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// What a copy or store reads or writes.
struct Area {
  std::int32_t rank;
  Region rows;
  std::int64_t first_col;
  std::int64_t cols;
};

Area source_of(const Plan& plan, const Message& message) {
  return {plan.rank, message.source, message.col, moved_cols(plan, message)};
}

Area destination_of(const Plan& plan, const Message& message) {
  return {message.peer, message.destination, message.col, moved_cols(plan, message)};
}

bool overlap(const Area& one, const Area& other) {
  return one.rank == other.rank && one.rows.buffer == other.rows.buffer &&
         one.rows.row < other.rows.row + other.rows.rows && other.rows.row < one.rows.row + one.rows.rows &&
         one.first_col < other.first_col + other.cols && other.first_col < one.first_col + one.cols;
}

}  // namespace

bool joins_stores(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                  std::size_t index) {
  if (!follows_at_once(plan, messages, index)) return false;
  const Area read = source_of(plan, messages[index]);
  const Area written = destination_of(plan, messages[index]);
  return std::none_of(messages.begin() + static_cast<std::ptrdiff_t>(first),
                      messages.begin() + static_cast<std::ptrdiff_t>(index), [&](const Message& earlier) {
                        const Area earlier_written = destination_of(plan, earlier);
                        return overlap(earlier_written, read) || overlap(earlier_written, written) ||
                               overlap(source_of(plan, earlier), written);
                      });
}

bool waits_for_credits_only(const Plan& plan, const Message& message) {
  return !message.after_tiles && std::ranges::all_of(message.waits, [&](const Wait& wait) {
    return at(plan.counters, wait.counter).role == CounterRole::credit;
  });
}

}  // namespace flashoverlap
