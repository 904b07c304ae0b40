/// Giving back what ranks share, which waits for the other ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// How long a rank waits for the others when it gives something back. Once it has missed them it waits no
/// more until they meet again: a rank that has lost another one has many things to give back.
class Farewell {
 public:
  explicit Farewell(std::chrono::milliseconds limit) : limit_(limit) {}

  std::chrono::milliseconds limit() const noexcept { return missed_ ? std::chrono::milliseconds(0) : limit_; }
  void note_missed(bool missed) noexcept { missed_ = missed; }

 private:
  const std::chrono::milliseconds limit_;
  std::atomic<bool> missed_ = false;
};

/// One for a communicator and all that is made from it.
Farewell& farewell_of(const Communicator& communicator);

}  // namespace flashoverlap
