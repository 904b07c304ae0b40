#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// A tile or a message of some rank.
struct Event {
  std::int32_t rank = none;  ///< `none`: before the run
  std::int32_t index = 0;
  bool is_tile = false;
};

/// Numbers all counters of all ranks.
class CounterNumbers {
 public:
  explicit CounterNumbers(std::span<const Plan> plans);
  std::size_t of(std::int32_t rank, std::int32_t counter) const {
    return first_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(counter);
  }
  std::size_t count() const { return first_.back(); }

 private:
  std::vector<std::size_t> first_;
};

/// What is certain to have happened, whatever the timing: the happened-before relation, as seen from one
/// event.
class Knowledge {
 public:
  Knowledge(std::size_t ranks, std::size_t counters);

  void merge(const Knowledge& other);

  void learn_begun(std::int32_t rank);
  /// That a message is done, and with it those before it on the same of the rank's two streams.
  void learn_message(std::int32_t rank, bool beside, std::int32_t index);
  void learn_counter(std::size_t number) { counters_[number / 64] |= std::uint64_t{1} << number % 64; }
  void learn_all_tiles(std::int32_t rank) { all_tiles_ |= std::uint64_t{1} << rank; }

  bool begun(std::int32_t rank) const { return done(rank, false) >= 0; }
  bool message_done(std::int32_t rank, bool beside, std::int32_t index) const {
    return done(rank, beside) > index;
  }
  bool counter_reached(std::size_t number) const { return counters_[number / 64] >> number % 64 & 1; }
  bool all_tiles_done(std::int32_t rank) const { return all_tiles_ >> rank & 1; }

 private:
  static std::size_t place(std::int32_t rank, bool beside) {
    return 2 * static_cast<std::size_t>(rank) + (beside ? 1 : 0);
  }
  std::int32_t done(std::int32_t rank, bool beside) const { return messages_[place(rank, beside)]; }

  /// [rank, stream] place in the message list behind the last that is done; -1: not known to have begun
  std::vector<std::int32_t> messages_;
  std::vector<std::uint64_t> counters_;  // a bit for each counter that has been reached
  std::uint64_t all_tiles_ = 0;          // a bit for each rank
  static_assert(max_ranks <= 64);
};

/// Whether `event` is certain to be over for somebody who has `knowledge`. A tile is known through the
/// counter it raised.
bool is_known(const Event& event, const Knowledge& knowledge, std::span<const Plan> plans,
              const CounterNumbers& numbers);

std::string describe(const Event& event, std::span<const Plan> plans);

}  // namespace flashoverlap
