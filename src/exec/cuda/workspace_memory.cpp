#include "exec/cuda/workspace_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/give_up.hpp"
#include "cuda/on_device.hpp"
#include "exec/cuda/workspace_layout.hpp"
#include "flashoverlap/workspace.hpp"

namespace flashoverlap {
namespace {

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

void require_bytes(std::string_view what, std::int64_t there_are, std::int64_t needed) {
  require(needed <= there_are, fmt::format("workspace's bytes of {}", what), there_are,
          fmt::format("must be at least {} for this operator", needed));
}

}  // namespace

WorkspaceMemory::WorkspaceMemory(const WorkspaceBytes& bytes, const Communicator& communicator)
    : bytes_(bytes),
      communicator_(communicator),
      device_(size(bytes.device)),
      shares_(size(bytes.shares)),
      collective_(communicator.allocate(size(bytes.collective))),
      past_streams_(size(bytes.counters)) {
  registered_.emplace_back(communicator, collective_);
  shares_.set_bytes(0xFF);
  if (bytes.peer_written > 0) {
    peers_ = std::make_unique<PeerMemory>(communicator, size(bytes.counters + bytes.peer_written));
  } else {
    counters_ = DeviceArray<std::byte>(size(bytes.counters));
    counters_.set_bytes(0);
  }
}

std::byte* WorkspaceMemory::counters(int rank) const {
  if (peers_) return peers_->of(rank);
  return rank == communicator_.rank() ? counters_.data() : nullptr;
}

std::byte* WorkspaceMemory::peer_written(int rank) const {
  return peers_ ? peers_->of(rank) + bytes_.counters : nullptr;
}

CollectiveMemory WorkspaceMemory::collective(const Communicator& collectives) {
  const auto found =
      std::ranges::find(registered_, collectives, &std::pair<Communicator, CollectiveMemory>::first);
  if (found != registered_.end()) return found->second;
  return registered_.emplace_back(collectives, collectives.share(collective_)).second;
}

bool WorkspaceMemory::contains(const void* address) const {
  const auto within = [=](const void* begin, std::int64_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    return bytes > 0 && address >= first && address < first + bytes;
  };
  return within(device_.data(), bytes_.device) || within(collective_.data.get(), bytes_.collective) ||
         within(peer_written(communicator_.rank()), bytes_.peer_written);
}

std::int64_t WorkspaceMemory::reserve(const WorkspaceBytes& needed, const Communicator& communicator) {
  require(communicator == communicator_, "workspace", "another communicator's",
          "must be made for the communicator of the operator");
  require_bytes("memory that peers write", bytes_.peer_written, needed.peer_written);
  require_bytes("memory for collectives", bytes_.collective, needed.collective);
  require_bytes("other memory", bytes_.device, needed.device);
  require_bytes("shares", bytes_.shares, needed.shares);
  const std::scoped_lock held(reserving_);
  require_bytes("counters", reserved_.largest_gap(), needed.counters);
  return reserved_.take(needed.counters).value();
}

void WorkspaceMemory::meet() {
  if (peers_) peers_->meet();
}

void WorkspaceMemory::tell_failure() noexcept {
  if (peers_) peers_->tell_failure();
}

void WorkspaceMemory::throw_if_peer_failed() const {
  const std::optional<int> peer = peers_ ? peers_->failed_peer() : std::nullopt;
  if (!peer) return;
  throw CommunicationError(
      fmt::format("rank {} of {}: rank {} has given up a run, so what it sent may be wrong",
                  communicator_.rank(), communicator_.ranks(), *peer));
}

Workspace::Workspace(const WorkspaceBytes& bytes, const Communicator& communicator) {
  for (const std::int64_t each :
       {bytes.peer_written, bytes.collective, bytes.device, bytes.shares, bytes.counters})
    require(each >= 0 && each % 256 == 0, "workspace bytes", each, "must come from WorkspaceBytes::add");
  require_current(communicator.device());
  {
    const auto making = watch_construction(communicator, "a workspace");
    memory_ = std::make_shared<WorkspaceMemory>(bytes, communicator);
  }
  communicator.throw_if_failed();  // it may have expired at the last moment
}

const WorkspaceBytes& Workspace::bytes() const noexcept { return memory_->bytes(); }

std::int64_t Workspace::free_counters() const { return memory_->free_counters(); }

}  // namespace flashoverlap
