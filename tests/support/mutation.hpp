// What random changes of plans share: choices, and the plans that belong together.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

namespace flashoverlap::testing {

class Mutation {
 protected:
  explicit Mutation(std::uint64_t seed) : random_(seed) {}

  int below(int end) { return std::uniform_int_distribution(0, std::max(end - 1, 0))(random_); }
  bool chance(int one_in) { return below(one_in) == 0; }
  template <typename List>
  decltype(auto) pick(List&& list) {
    return at(list, below(static_cast<int>(std::size(list))));
  }
  int any_index(const auto& list) { return below(static_cast<int>(std::size(list))); }
  std::int32_t any_counter(const Plan& plan) { return below(static_cast<int>(plan.counters.size())); }
  std::int32_t any_rank() { return below(static_cast<int>(plans_->size())); }
  void nudge(std::int32_t& number) { number += pick(std::array{-1, 1, -1, 1, 2, -2, 4, -4, 8}); }

  /// Most are next to where they were.
  template <typename T>
  void move_one(std::vector<T>& list) {
    if (list.size() < 2) return;
    const int from = any_index(list);
    const int to = chance(2)
                       ? any_index(list)
                       : std::clamp(from + pick(std::array{-1, 1}), 0, static_cast<int>(list.size()) - 1);
    T moved = std::move(at(list, from));
    list.erase(list.begin() + from);
    list.insert(list.begin() + to, std::move(moved));
  }

  std::mt19937_64 random_;
  std::vector<Plan>* plans_ = nullptr;  // of all ranks
};

}  // namespace flashoverlap::testing
