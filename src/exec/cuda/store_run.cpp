#include "exec/cuda/store_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/error.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

constexpr int default_blocks = 8;

bool is_full(const std::vector<StoredRectangle>& rectangles) {
  return rectangles.size() >= most_rectangles / 2;  // a message may need several
}

}  // namespace

/// What the kernel works off, made message by message.
class StoreRun::Rectangles {
 public:
  Rectangles(const Plan& plan, const PlanMemory& memory, const RowPitches& pitches)
      : plan_(plan), memory_(memory), pitches_(pitches) {}

  const std::vector<StoredRectangle>& list() const { return list_; }

  /// The same part for several ranks is read once. Raises that find no place have an empty rectangle.
  void add(const Message& message, const std::vector<ResolvedRaise>& raises) {
    if (list_.empty() || !is_read_already(message)) list_.push_back(rectangle(message));
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
  std::vector<StoredRectangle> list_;
  const Message* last_ = nullptr;
};

StoreRun::StoreRun(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                   const std::vector<std::vector<ResolvedRaise>>& raises, const PlanMemory& memory,
                   const RowPitches& pitches, std::chrono::nanoseconds wait_limit, std::uint32_t* expired)
    : blocks_(plan.schedule.comm_multiprocessors > 0 ? plan.schedule.comm_multiprocessors : default_blocks) {
  Rectangles rectangles(plan, memory, pitches);
  std::size_t next = first;
  do {
    rectangles.add(messages[next], raises[next]);
    ++next;
  } while (next < messages.size() && joins_stores(plan, messages, first, next) &&
           !is_full(rectangles.list()));
  messages_ = next - first;
  rectangles_ = DeviceArray<StoredRectangle>(rectangles.list());
  blocks_done_ = DeviceArray<std::uint32_t>(rectangles.list().size());
  blocks_done_.set_bytes(0);
  list_.rectangles = rectangles_.data();
  list_.blocks_done = blocks_done_.data();
  list_.expired = expired;
  list_.count = static_cast<int>(rectangles.list().size());
  list_.wait_limit_ns = static_cast<std::uint64_t>(wait_limit.count());

  const std::vector<Wait>& awaited = messages[first].waits;
  waits_ = std::ssize(awaited) <= most_waits && waits_for_credits_only(plan, messages[first]);
  if (!waits_) return;
  for (const Wait& wait : awaited) {
    list_.waits[static_cast<std::size_t>(list_.wait_count++)] = {
        memory.counters(plan.rank) + wait.counter, target_of(plan, wait.counter), wait.reset ? 1u : 0u};
  }
}

void StoreRun::enqueue(const Buffers& own, cudaStream_t stream, bool rehearses) const {
  StoreList list = list_;
  std::ranges::transform(own, list.own.begin(), [](void* buffer) { return static_cast<std::byte*>(buffer); });
  list.raise = !rehearses;
  if (rehearses) list.wait_count = 0;
  FLASHOVERLAP_CUDA(store_all(list, blocks_, stream));
}

}  // namespace flashoverlap
