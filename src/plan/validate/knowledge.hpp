#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

/// A tile or a message of some rank.
struct Event {
  std::int32_t rank = none;  ///< `none`: before the run
  std::int32_t index = 0;
  bool is_tile = false;
};

/// Numbers the counters of all ranks consecutively; also those alone that tiles raise.
class CounterNumbers {
 public:
  explicit CounterNumbers(std::span<const Plan> plans);
  std::size_t of(std::int32_t rank, std::int32_t counter) const {
    return at(first_, rank) + static_cast<std::size_t>(counter);
  }
  std::size_t count() const { return first_.back(); }

  /// Of the counter with this number; `none` if no tile raises it.
  std::int32_t among_tiles(std::size_t number) const { return among_tiles_[number]; }
  std::size_t count_among_tiles() const { return count_among_tiles_; }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::int32_t> among_tiles_;
  std::size_t count_among_tiles_ = 0;
};

/// What has certainly happened before one event, whatever the timing: the happens-before relation.
class Knowledge {
 public:
  /// `counters`: those that tiles raise.
  Knowledge(std::size_t ranks, std::size_t counters);

  void merge(const Knowledge& other);

  /// Its size in memory.
  std::size_t words() const { return messages_.size() / 2 + counters_.size(); }

  void learn_begun(std::int32_t rank);
  /// That a message is done, and so are those before it on the same stream; `concurrent` is the second
  /// stream.
  void learn_message(std::int32_t rank, bool concurrent, std::int32_t index);
  /// That a counter has reached its target; by its number among those that tiles raise.
  void learn_counter(std::int32_t number) { counters_[word(number)] |= bit(number); }
  void learn_all_tiles(std::int32_t rank) { all_tiles_ |= std::uint64_t{1} << rank; }

  bool begun(std::int32_t rank) const { return done(rank, false) >= 0; }
  bool message_done(std::int32_t rank, bool concurrent, std::int32_t index) const {
    return done(rank, concurrent) > index;
  }
  bool counter_reached(std::int32_t number) const { return (counters_[word(number)] & bit(number)) != 0; }
  bool all_tiles_done(std::int32_t rank) const { return all_tiles_ >> rank & 1; }

 private:
  static std::size_t word(std::int32_t number) { return static_cast<std::size_t>(number) / 64; }
  static std::uint64_t bit(std::int32_t number) { return std::uint64_t{1} << number % 64; }
  static std::size_t place(std::int32_t rank, bool concurrent) {
    return 2 * static_cast<std::size_t>(rank) + (concurrent ? 1 : 0);
  }
  std::int32_t done(std::int32_t rank, bool concurrent) const { return messages_[place(rank, concurrent)]; }

  /// [rank, stream] index after the last message that is done; -1: the run has perhaps not begun
  std::vector<std::int32_t> messages_;
  std::vector<std::uint64_t> counters_;  // one bit for each counter: it has reached its target
  std::uint64_t all_tiles_ = 0;          // one bit for each rank
  static_assert(max_ranks <= 64);
};

/// Whether `event` is certainly over, given `knowledge`. A tile is known to be done by the counter that it
/// raises.
bool is_known(const Event& event, const Knowledge& knowledge, std::span<const Plan> plans,
              const CounterNumbers& numbers);

std::string describe(const Event& event, std::span<const Plan> plans);

}  // namespace flashoverlap
