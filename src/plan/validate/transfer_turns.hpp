#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/matching.hpp"

namespace flashoverlap {

/// Finds the transfers of each message. A rank's messages begin in order, so the next send from one rank to
/// another is that of the next transfer between them.
class TransferTurns {
 public:
  TransferTurns(std::size_t ranks, std::span<const Transfer> transfers)
      : ranks_(ranks), next_sent_(ranks * ranks, 0) {
    for (std::size_t index = transfers.size(); index-- > 0;)
      next_sent_[pair(transfers[index].source, transfers[index].target)] = index;
    next_received_ = next_sent_;
  }

  /// Those of the rank's next message, by their indices, in order; until the next call.
  const std::vector<std::size_t>& next(std::int32_t rank, const Message& message) {
    found_.clear();
    for (const Part& part : message.sends) found_.push_back(next_sent_[pair(rank, part.peer)]++);
    for (const Part& part : message.receives) found_.push_back(next_received_[pair(part.peer, rank)]++);
    std::ranges::sort(found_);
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return found_;
  }

 private:
  std::size_t pair(std::int32_t source, std::int32_t target) const {
    return static_cast<std::size_t>(source) * ranks_ + static_cast<std::size_t>(target);
  }

  std::size_t ranks_;
  std::vector<std::size_t> next_sent_;  // [source, target]
  std::vector<std::size_t> next_received_;
  std::vector<std::size_t> found_;
};

}  // namespace flashoverlap
