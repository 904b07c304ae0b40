#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Counts the steps, of some nanoseconds and bytes each, that it takes to follow plans. A small plan can ask
/// for very many: one copy of shifted rows onto themselves cuts them all apart.
class Effort {
 public:
  explicit Effort(std::span<const Plan> plans) : limit_(for_any_plan) {
    for (const Plan& plan : plans) {
      limit_ += for_each_entry * (plan.tiles.size() + plan.messages.size() + plan.counters.size() +
                                  plan.row_map.size() + plan.output.reorder.first_row.size());
    }
  }

  /// Throws `InvalidPlan` where plans of this size may take fewer only. `what`: what there is too much of.
  void spend(std::size_t steps, std::string_view what) {
    spent_ += steps;
    if (spent_ > limit_) {
      throw InvalidPlan(fmt::format(
          "the plans take more than {} steps to follow, too many for their size: {}", limit_, what));
    }
  }

 private:
  static constexpr std::size_t for_any_plan = 16'000'000;
  static constexpr std::size_t for_each_entry = 5'000;  // a tile reads and writes some hundreds of cells

  std::size_t limit_;
  std::size_t spent_ = 0;
};

}  // namespace flashoverlap
