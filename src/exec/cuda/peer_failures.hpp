#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "cuda/handles.hpp"
#include "cuda/pinned_array.hpp"

namespace flashoverlap {

/// A rank whose word is not zero, if there is one.
std::optional<int> failed_rank(std::span<const std::uint32_t> words);

/// The words of this rank's memory in which its peers tell that they have given up a run.
class PeerFailures {
 public:
  /// `words`: one for each rank, zero until it fails. The stream must outlive this.
  PeerFailures(const std::uint32_t* words, int ranks, const CudaStream& stream);

  /// A rank that has failed, as far as is known. Does not wait: it looks at what was copied since the last
  /// call, and has the words copied for the next one.
  std::optional<int> look();
  /// As the words are now, if they can be copied within the limit.
  struct Found {
    bool is_known = false;
    std::optional<int> rank{};
  };
  Found find(std::chrono::milliseconds limit);

 private:
  void copy();
  bool is_copied() const;

  const std::uint32_t* const words_;
  const CudaStream& stream_;
  const PinnedArray<std::uint32_t> copy_;
  CudaEvent copied_;
  bool is_copying_ = false;
  std::mutex mutex_;
};

}  // namespace flashoverlap
