#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace flashoverlap {

/// Which counters of a workspace its operators have, in bytes: the first gap that is large enough. So ranks
/// that take and give back in the same order have the same ones.
class CounterSpace {
 public:
  explicit CounterSpace(std::int64_t bytes) : bytes_(bytes) {}

  /// Where they begin; nothing if there is no such gap.
  std::optional<std::int64_t> take(std::int64_t bytes) {
    std::int64_t offset = 0;
    for (const auto& [begin, taken] : taken_) {
      if (begin - offset >= bytes) break;
      offset = begin + taken;
    }
    if (offset + bytes > bytes_) return std::nullopt;
    taken_.emplace(offset, bytes);
    return offset;
  }

  void give_back(std::int64_t offset) noexcept { taken_.erase(offset); }

  /// The most that can be taken at once.
  std::int64_t largest_gap() const {
    std::int64_t largest = 0;
    std::int64_t offset = 0;
    for (const auto& [begin, taken] : taken_) {
      largest = std::max(largest, begin - offset);
      offset = begin + taken;
    }
    return std::max(largest, bytes_ - offset);
  }

 private:
  std::int64_t bytes_;
  std::map<std::int64_t, std::int64_t> taken_;  // bytes by offset
};

}  // namespace flashoverlap
