#pragma once

#include <set>
#include <span>
#include <tuple>

#include "plan/at.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/tile_counters.hpp"

namespace flashoverlap {

/// The rules of credits: what a rank must know of another before it touches that rank's memory, as the
/// other's earlier run may still use it.
class Credits {
 public:
  Credits(std::span<const Plan> plans, const TileCounters& counters, Findings& findings)
      : plans_(plans), counters_(counters), findings_(findings) {}

  /// A write into memory of `owner`: its run is known to have begun. `place()` names the memory.
  template <typename Place>
  void check_write(const Event& writer, const Knowledge& knowledge, std::int32_t owner,
                   const Place& place) const {
    if (knowledge.begun(owner)) return;
    findings_.add(Violation::credit, "{} may write {} before rank {} has begun its run",
                  describe(writer, plans_), place(), owner);
  }

  /// A raise of another rank's counter. Without knowing that the other's run has begun, it may come before
  /// that rank has reset the counter in its earlier run: `check_resets` judges it.
  void note_raise(std::int32_t raiser, const Raise& raise, const Knowledge& knowledge) {
    if (!knowledge.begun(raise.rank)) early_.insert({raiser, raise.rank, raise.counter});
  }

  /// Who raises a counter early knows at the end of its run that the counter is reset. `ends[rank]`: what is
  /// known when the rank's run is over; `reset_by(owner, counter)`: the message of the owner that resets it.
  template <typename ResetBy>
  void check_resets(std::span<const Knowledge> ends, const ResetBy& reset_by) const {
    for (const auto& [raiser, owner, counter] : early_) {
      const Knowledge& end = at(ends, raiser);
      if (is_known(message_event(owner, reset_by(owner, counter)), end, plans_, counters_)) continue;
      findings_.add(Violation::credit,
                    "rank {} may raise rank {}'s {} in the next run before it is reset in this one", raiser,
                    owner, describe_counter(at(plans_, owner), counter));
    }
  }

 private:
  std::span<const Plan> plans_;
  const TileCounters& counters_;
  Findings& findings_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> early_;  // raiser, owner, counter
};

}  // namespace flashoverlap
