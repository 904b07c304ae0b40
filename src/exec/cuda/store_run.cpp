#include "exec/cuda/store_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/error.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"
#include "plan/store_rules.hpp"

namespace flashoverlap {
/// What the kernel works off, made message by message after what `list` has.
class StoreRun::Rectangles {
 public:
  Rectangles(const Plan& plan, const PlanMemory& memory, const RowPitches& pitches,
             std::vector<StoredRectangle>& list)
      : plan_(plan), memory_(memory), pitches_(pitches), list_(list), first_(list.size()) {}

  std::size_t size() const { return list_.size() - first_; }
  bool is_full() const { return size() >= most_rectangles / 2; }  // a message may need several

  /// The same part for several ranks is read once. Raises that find no place have an empty rectangle.
  void add(const Message& message, const std::vector<ResolvedRaise>& raises) {
    if (last_ == nullptr || !is_read_already(message)) list_.push_back(rectangle(message));
    last_ = &message;
    add_target(message);
    for (const ResolvedRaise& raise : raises) {
      if (list_.back().raises.count == most_raises) list_.emplace_back();
      RaisedCounters& raised = list_.back().raises;
      raised.counters[raised.count++] = raise.counter;
    }
  }

 private:
  bool is_read_already(const Message& message) const {
    return move_the_same_part(*last_, message) && list_.back().rows > 0 &&
           list_.back().to_pitch == to_pitch(message) && list_.back().target_count < most_targets;
  }

  /// Of a row.
  std::int64_t first_byte(const Message& message) const {
    return std::int64_t{message.col} * size_of(plan_.problem.data_type);
  }

  std::int64_t to_pitch(const Message& message) const {
    return row_bytes_apart(plan_, pitches_, message.destination.buffer, message.peer);
  }

  StoredRectangle rectangle(const Message& message) const {
    const std::int64_t pitch = row_bytes_apart(plan_, pitches_, message.source.buffer, plan_.rank);
    const std::int64_t row_bytes = moved_cols(plan_, message) * size_of(plan_.problem.data_type);
    return {.from = message.source.buffer,
            .from_offset = message.source.row * pitch + first_byte(message),
            .from_pitch = pitch,
            .to_pitch = to_pitch(message),
            .row_bytes = row_bytes,
            .rows = message.source.rows};
  }

  void add_target(const Message& message) {
    StoredRectangle& rectangle = list_.back();
    StoredTarget& target = rectangle.targets[rectangle.target_count++];
    target.to = message.destination.buffer;
    target.offset = message.destination.row * rectangle.to_pitch + first_byte(message);
    if (message.peer != plan_.rank)
      target.peer = static_cast<std::byte*>(memory_.buffer(message.peer, message.destination.buffer));
  }

  const Plan& plan_;
  const PlanMemory& memory_;
  const RowPitches& pitches_;
  std::vector<StoredRectangle>& list_;
  const std::size_t first_;
  const Message* last_ = nullptr;
};

StoreRun::StoreRun(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                   const std::vector<std::vector<ResolvedRaise>>& raises, const PlanMemory& memory,
                   const RowPitches& pitches, std::chrono::nanoseconds wait_limit, std::uint32_t* expired,
                   std::vector<StoredRectangle>& rectangles)
    : blocks_(plan.schedule.comm_multiprocessors > 0 ? plan.schedule.comm_multiprocessors
                                                     : default_store_multiprocessors),
      first_rectangle_(rectangles.size()) {
  Rectangles own(plan, memory, pitches, rectangles);
  std::size_t next = first;
  do {
    own.add(messages[next], raises[next]);
    ++next;
  } while (next < messages.size() && joins_stores(plan, messages, first, next) && !own.is_full());
  messages_ = next - first;
  list_.expired = expired;
  list_.count = static_cast<int>(own.size());
  list_.wait_limit_ns = static_cast<std::uint64_t>(wait_limit.count());

  const ShortList<Wait>& awaited = messages[first].waits;
  waits_ = std::ssize(awaited) <= most_waits && waits_for_credits_only(plan, messages[first]);
  if (!waits_) return;
  for (const Wait& wait : awaited) {
    list_.waits[static_cast<std::size_t>(list_.wait_count++)] = {
        memory.counters(plan.rank) + wait.counter, target_of(plan, wait.counter), wait.reset ? 1u : 0u};
  }
}

void StoreRun::enqueue(const StoreMemory& rectangles, const Buffers& own, cudaStream_t stream,
                       bool rehearses) const {
  StoreList list = list_;
  list.rectangles = rectangles.rectangles() + first_rectangle_;
  list.blocks_done = rectangles.blocks_done() + first_rectangle_;
  std::ranges::transform(own, list.own.begin(), [](void* buffer) { return static_cast<std::byte*>(buffer); });
  list.raise = !rehearses;
  if (rehearses) list.wait_count = 0;
  FLASHOVERLAP_CUDA(store_all(list, blocks_, stream));
}

}  // namespace flashoverlap
