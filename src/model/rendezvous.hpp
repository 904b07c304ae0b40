/// Which messages of different ranks run together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// A message by its rank and its place in the message list.
struct MessagePlace {
  std::int32_t rank = 0;
  std::size_t index = 0;
};

/// partners[rank][index]: the messages of other ranks without which a message cannot run, the same collective
/// on every other rank or the other sides of an exchange. Partners are mutual; a message that meets another
/// in both directions lists it twice. Throws `InvalidPlan` where messages do not match.
std::vector<std::vector<std::vector<MessagePlace>>> find_partners(std::span<const Plan> plans);

}  // namespace flashoverlap
