/// Reproducible random delays: they let tests explore interleavings.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "data_type/splitmix.hpp"
#include "flashoverlap/host_executor.hpp"

namespace flashoverlap {

enum class DelayPoint : std::uint8_t { run_begin, tile_begin, tile_raise, message_begin, message_raise };

/// Between 0 and `options.max_delay`, the same for the same arguments.
inline std::chrono::microseconds random_delay(const HostOptions& options, int rank, DelayPoint point,
                                              std::size_t index) {
  const auto place = static_cast<std::uint64_t>(rank) << 8 | static_cast<std::uint64_t>(point);
  const std::uint64_t number = splitmix64(splitmix64(options.delay_seed, place), index);
  const auto choices = static_cast<std::uint64_t>(options.max_delay.count()) + 1;
  return std::chrono::microseconds(static_cast<std::int64_t>(number % choices));
}

}  // namespace flashoverlap
