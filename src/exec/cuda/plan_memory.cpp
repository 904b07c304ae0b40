#include "exec/cuda/plan_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "exec/cuda/plan_needs.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t failure_bytes = max_ranks * sizeof(std::uint32_t);  // at the beginning, a word each

constexpr std::array operators_roles{BufferRole::staging, BufferRole::inbox, BufferRole::gathered,
                                     BufferRole::out};

std::size_t align(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

std::size_t bytes_of(const Plan& plan, const Buffer& buffer) {
  return static_cast<std::size_t>(buffer.rows * buffer.cols * size_of(plan.problem.data_type));
}

std::shared_ptr<void> device_memory(std::size_t bytes) {
  const auto array = std::make_shared<DeviceArray<std::byte>>(bytes);
  return {array, array->data()};
}

/// The same on every rank.
std::size_t most_bytes(const std::vector<Plan>& plans, BufferRole role) {
  std::size_t most = 0;
  for (const Plan& plan : plans) most = std::max(most, bytes_of(plan, plan.buffer(role)));
  return most;
}

}  // namespace

std::uint32_t target_of(const Plan& plan, std::int32_t counter) {
  return static_cast<std::uint32_t>(plan.counters[static_cast<std::size_t>(counter)].target);
}

PlanMemory::Layout::Layout(const Plan& plan)
    : counters(align(failure_bytes)), bytes(align(counters + plan.counters.size() * sizeof(std::uint32_t))) {
  for (std::size_t role = 0; role < buffer_count; ++role) {
    const Buffer& buffer = plan.buffers[role];
    const std::size_t size = bytes_of(plan, buffer);
    const bool in_peer_memory = buffer.peer_written && size > 0;
    buffers[role] = in_peer_memory ? static_cast<std::int64_t>(bytes) : none;
    if (in_peer_memory) bytes += align(size);
  }
}

PlanMemory::PlanMemory(const std::vector<Plan>& plans, const Communicator& communicator,
                       const Communicator& collectives, bool own_result)
    : rank_(communicator.rank()) {
  for (const Plan& plan : plans) layouts_.emplace_back(plan);
  const auto own = static_cast<std::size_t>(rank_);
  for (const BufferRole role : operators_roles) {
    const auto index = static_cast<std::size_t>(role);
    const Buffer& buffer = plans[own].buffers[index];
    if (buffer.peer_written || (role == BufferRole::out && !own_result)) continue;
    if (meets_collectives(plans, role)) {
      CollectiveMemory memory = collectives.allocate(most_bytes(plans, role));
      own_buffers_[index] = std::move(memory.data);
      is_shared_[index] = memory.is_shared;
    } else {
      own_buffers_[index] = device_memory(bytes_of(plans[own], buffer));
    }
  }
  if (needs_peer_memory(plans)) {
    peers_ = std::make_unique<PeerMemory>(communicator, layouts_[own].bytes);
  } else {
    own_ = DeviceArray<std::byte>(layouts_[own].bytes);
    FLASHOVERLAP_CUDA(cudaMemsetAsync(own_.data(), 0, own_.size(), side_));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(side_));
  }
}

std::byte* PlanMemory::memory(int rank) const {
  if (peers_) return peers_->of(rank);
  return rank == rank_ ? own_.data() : nullptr;
}

void* PlanMemory::buffer(int rank, BufferRole role) const {
  const auto index = static_cast<std::size_t>(role);
  const std::int64_t offset = layouts_[static_cast<std::size_t>(rank)].buffers[index];
  if (offset != none) return memory(rank) + offset;
  return rank == rank_ ? own_buffers_[index].get() : nullptr;
}

std::uint32_t* PlanMemory::counters(int rank) const {
  std::byte* const begin = memory(rank);
  if (begin == nullptr) return nullptr;
  return reinterpret_cast<std::uint32_t*>(begin + layouts_[static_cast<std::size_t>(rank)].counters);
}

void PlanMemory::meet() {
  if (peers_) peers_->meet();
}

void PlanMemory::tell_failure() const noexcept {
  if (!peers_) return;
  try {
    StreamMemoryBatch batch;
    for (int rank = 0; rank < static_cast<int>(layouts_.size()); ++rank) {
      if (rank != rank_) batch.write(reinterpret_cast<std::uint32_t*>(memory(rank)) + rank_, 1);
    }
    batch.enqueue(side_);
    cudaStreamSynchronize(side_);
  } catch (const Error&) {
    // The GPU is gone; its peers find that out by themselves.
  }
}

void PlanMemory::check_peers() const {
  if (!peers_) return;
  std::array<std::uint32_t, max_ranks> failures{};
  FLASHOVERLAP_CUDA(
      cudaMemcpyAsync(failures.data(), memory(rank_), failure_bytes, cudaMemcpyDeviceToHost, side_));
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(side_));
  const auto failed = std::ranges::find_if(failures, [](std::uint32_t word) { return word != 0; });
  if (failed == failures.end()) return;
  throw CommunicationError(
      fmt::format("rank {} of {}: rank {} has given up a run, so what it sent may be wrong", rank_,
                  layouts_.size(), failed - failures.begin()));
}

}  // namespace flashoverlap
