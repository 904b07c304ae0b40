#include "exec/cuda/peer_failures.hpp"

#include <algorithm>

#include "comm/bounded_wait.hpp"

namespace flashoverlap {

std::optional<int> failed_rank(std::span<const std::uint32_t> words) {
  const auto found = std::ranges::find_if(words, [](std::uint32_t word) { return word != 0; });
  if (found == words.end()) return std::nullopt;
  return static_cast<int>(found - words.begin());
}

PeerFailures::PeerFailures(const std::uint32_t* words, int ranks, const CudaStream& stream)
    : words_(words), stream_(stream), copy_(static_cast<std::size_t>(ranks)) {}

void PeerFailures::copy() {
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(copy_.values().data(), words_, copy_.values().size_bytes(),
                                    cudaMemcpyDeviceToHost, stream_));
  FLASHOVERLAP_CUDA(cudaEventRecord(copied_, stream_));
  is_copying_ = true;
}

bool PeerFailures::is_copied() const { return is_over(cudaEventQuery(copied_), "cudaEventQuery"); }

std::optional<int> PeerFailures::look() {
  const std::unique_lock held(mutex_, std::try_to_lock);
  if (!held || (is_copying_ && !is_copied())) return std::nullopt;
  const bool is_known = is_copying_;
  const std::optional<int> rank = is_known ? failed_rank(copy_.values()) : std::nullopt;
  if (!rank) copy();
  return rank;
}

PeerFailures::Found PeerFailures::find(std::chrono::milliseconds limit) {
  const std::scoped_lock held(mutex_);
  copy();  // after one that is under way
  if (!holds_within(limit, [this] { return is_copied(); })) return {};
  return {.is_known = true, .rank = failed_rank(copy_.values())};
}

}  // namespace flashoverlap
