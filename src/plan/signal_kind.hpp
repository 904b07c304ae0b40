#pragma once

#include <cstdint>

namespace flashoverlap {

/// The parts of a message without data, in their order.
enum class SignalKind : std::uint8_t { wait, reset, raise };

}  // namespace flashoverlap
