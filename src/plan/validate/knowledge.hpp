#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// A tile or a message of some rank.
struct Event {
  std::int32_t index = 0;
  std::int16_t rank = none;  ///< `none`: before the run
  bool is_tile = false;
};

Event tile_event(std::int32_t rank, std::int32_t index);
Event message_event(std::int32_t rank, std::int32_t index);
std::string describe(const Event& event, std::span<const Plan> plans);

/// What has certainly happened before one event, whatever the timing: the happens-before relation.
class Knowledge {
 public:
  /// `counters`: those that have a bit, see `TileCounters`.
  Knowledge(std::size_t ranks, std::size_t counters);

  void merge(const Knowledge& other);

  /// Its size in memory.
  std::size_t words() const { return messages_.size() + counters_.size(); }

  void learn_begun(std::int32_t rank) { learn(rank, 0); }
  /// That a message has passed its waits.
  void learn_waits(std::int32_t rank, std::int32_t index) { learn(rank, 2 * index + 1); }
  /// That a message is done, and so are those before it.
  void learn_message(std::int32_t rank, std::int32_t index) { learn(rank, 2 * index + 2); }
  void learn_counter(std::int32_t number) { counters_[word(number)] |= bit(number); }
  void learn_all_tiles(std::int32_t rank) { all_tiles_ |= std::uint64_t{1} << rank; }

  bool begun(std::int32_t rank) const { return steps(rank) >= 0; }
  bool waits_passed(std::int32_t rank, std::int32_t index) const { return steps(rank) > 2 * index; }
  bool message_done(std::int32_t rank, std::int32_t index) const { return steps(rank) > 2 * index + 1; }
  bool counter_reached(std::int32_t number) const { return (counters_[word(number)] & bit(number)) != 0; }
  bool all_tiles_done(std::int32_t rank) const { return all_tiles_ >> rank & 1; }

 private:
  static std::size_t word(std::int32_t number) { return static_cast<std::size_t>(number) / 64; }
  static std::uint64_t bit(std::int32_t number) { return std::uint64_t{1} << number % 64; }
  std::int32_t steps(std::int32_t rank) const { return messages_[static_cast<std::size_t>(rank)]; }
  void learn(std::int32_t rank, std::int32_t steps);

  /// [rank] two steps for each message: its waits are passed, it is done. -1: the run has perhaps not begun
  std::vector<std::int32_t> messages_;
  std::vector<std::uint64_t> counters_;  // one bit for each: it has reached its target
  std::uint64_t all_tiles_ = 0;          // one bit for each rank
  static_assert(max_ranks <= 64);
};

}  // namespace flashoverlap
