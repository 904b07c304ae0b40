// Barriers in shared memory, clusters, and the tensor memory accelerator.
#pragma once

#include <cuda.h>

#include "support/emulator/launch.hpp"

namespace flashoverlap::testing::emulator {

inline TransactionBarrier& barrier_at(Launch& launch, Block& block, std::uint32_t address) {
  const auto found = block.transaction_barriers.find(address);
  if (found != block.transaction_barriers.end()) return found->second;
  launch.error("a barrier that is not initialized");
  static TransactionBarrier nowhere;
  return nowhere;
}

inline void barrier_init(Launch& launch, std::uint32_t address, std::uint32_t arrivals) {
  launch.shared_at(address, 8);
  launch.block().transaction_barriers[address] = {.arrivals = arrivals, .missing = arrivals};
}

inline void end_turn_when_complete(Launch& launch, TransactionBarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.arrivals;
  ++barrier.turns;
  launch.wake(barrier.waiting);
}

/// What a block has been sent has arrived.
inline void barrier_complete(Launch& launch, Block& block, std::uint32_t address, std::size_t bytes) {
  TransactionBarrier& barrier = barrier_at(launch, block, address);
  barrier.bytes -= static_cast<std::int64_t>(bytes);
  end_turn_when_complete(launch, barrier);
}

inline bool has_ended(const Block& block) {
  return std::ranges::all_of(
      block.warps, [](const Warp& warp) { return std::ranges::all_of(warp.fibers, &Fiber::ended); });
}

inline void barrier_arrive(Launch& launch, Block& block, std::uint32_t address, std::uint32_t bytes = 0) {
  if (has_ended(block)) launch.error("an arrival at a block that has ended");
  TransactionBarrier& barrier = barrier_at(launch, block, address);
  if (barrier.missing == 0) {
    launch.error("more arrivals at a barrier than it counts");
    return;
  }
  --barrier.missing;
  barrier.bytes += bytes;
  end_turn_when_complete(launch, barrier);
}

/// Until a turn of this parity is over.
inline void barrier_wait(Launch& launch, std::uint32_t address, std::uint32_t parity) {
  TransactionBarrier& barrier = barrier_at(launch, launch.block(), address);
  while (barrier.turns % 2 == parity) {
    barrier.waiting.push_back(launch.place());
    launch.sleep();
  }
}

/// All threads of the cluster arrive at it, once in each launch. Any of them may wait for the others.
inline Barrier& cluster_barrier(Launch& launch) {
  constexpr int number = -1;
  return launch.block(launch.block().first_of_cluster).barriers[number];
}
inline int cluster_threads(Launch& launch) {
  return launch.block().grid->cluster * launch.block().grid->threads;
}
inline void cluster_arrive(Launch& launch) {
  Barrier& barrier = cluster_barrier(launch);
  if (++barrier.arrived % cluster_threads(launch) == 0) launch.wake(barrier.waiting);
}
inline void cluster_wait(Launch& launch) {
  Barrier& barrier = cluster_barrier(launch);
  const int threads = cluster_threads(launch);
  const int in_this_launch_too = (barrier.arrived + threads - 1) / threads * threads;
  while (barrier.arrived < in_this_launch_too) {
    barrier.waiting.push_back(launch.place());
    launch.sleep();
  }
}

/// An address in a block of the cluster has the block in its high bits.
constexpr std::uint32_t block_addresses = 1U << 24;
inline std::uint32_t address_in(std::uint32_t block, std::uint32_t address) {
  return (block + 1) * block_addresses + address;
}

/// To another block, whose barrier counts the bytes. Arrives at any time; what it overwrites is gone at once.
inline void send(Launch& launch, std::uint32_t to, const void* value, std::size_t size,
                 std::uint32_t barrier) {
  if (to / block_addresses != barrier / block_addresses)
    return launch.error("a store to one block that is counted in another one");
  const std::size_t target = launch.block().first_of_cluster + to / block_addresses - 1;
  std::byte* const shared = launch.shared_at(launch.block(target), to % block_addresses, size);
  std::memset(shared, 0xff, size);
  const auto* const bytes = static_cast<const std::byte*>(value);
  launch.later([=, &launch, sent = std::vector<std::byte>(bytes, bytes + size)] {
    Block& block = launch.block(target);
    if (has_ended(block)) launch.error("a store to a block that has ended");
    std::ranges::copy(sent, shared);
    barrier_complete(launch, block, barrier % block_addresses, size);
  });
}

constexpr std::uint32_t box_bytes_per_row = 128;

/// Where the 128-byte swizzle puts what belongs to an address.
inline std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 3 & 0x70); }

struct BoxPlace {
  int col;
  int row;
  int matrix;
};

/// Calls `visit(offset in the box, elements, element of the matrix)` for every chunk of 8 elements or, where
/// these are not all in the matrix, for each that is.
template <typename Visit>
void visit_box(const CUtensorMap& map, const BoxPlace& from, const Visit& visit) {
  if (from.matrix < 0 || from.matrix >= map.matrices) return;
  constexpr int chunk = 8;
  for (int row = 0; row < map.box_rows; ++row) {
    const std::int64_t map_row = std::int64_t{from.row} + row;
    if (map_row < 0 || map_row >= map.rows) continue;
    std::byte* start = map.base + (from.matrix * map.rows + map_row) * map.pitch * 2;
    for (int col = 0; col < 64; col += chunk) {
      const std::int64_t map_col = std::int64_t{from.col} + col;
      const std::uint32_t offset =
          static_cast<std::uint32_t>(row) * box_bytes_per_row + static_cast<std::uint32_t>(col) * 2;
      if (map_col >= 0 && map_col + chunk <= map.cols &&
          reinterpret_cast<std::uintptr_t>(start + map_col * 2) % 16 == 0) {
        visit(offset, chunk, start + map_col * 2);
        continue;
      }
      for (std::uint32_t element = 0; element < chunk; ++element) {
        if (map_col + element >= 0 && map_col + element < map.cols)
          visit(offset + element * 2, 1, start + (map_col + element) * 2);
      }
    }
  }
}

inline std::vector<std::byte> read_box(Launch& launch, const CUtensorMap& map, const BoxPlace& from) {
  std::vector<std::byte> box(static_cast<std::size_t>(map.box_rows) * box_bytes_per_row);  // zero outside
  visit_box(map, from, [&](std::uint32_t offset, int elements, const std::byte* element) {
    launch.load(&box[offset], element, static_cast<std::size_t>(elements) * 2);
  });
  return box;
}

/// To the same place in every block of the cluster whose bit is set in `blocks`. Arrives at any time; what it
/// overwrites is gone at once.
inline void tma_load(Launch& launch, std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                     std::uint32_t blocks, const BoxPlace& from) {
  if (launch.fiber().has_polled) launch.error("an asynchronous load after a counter without a fence");
  if (map.base == nullptr) return launch.error("a load from no matrix");
  if (to % 1024 != 0) launch.error("a box that does not begin where the swizzle does");
  const std::uint32_t bytes = static_cast<std::uint32_t>(map.box_rows) * box_bytes_per_row;
  std::vector<std::size_t> targets;
  for (std::size_t each = 0; blocks >> each != 0; ++each) {
    if ((blocks >> each & 1) != 0) targets.push_back(launch.block().first_of_cluster + each);
  }
  for (const std::size_t target : targets)
    std::memset(launch.shared_at(launch.block(target), to, bytes), 0xff, bytes);
  ++launch.counts.copies;
  std::vector<std::byte> early;
  if (launch.draw()) early = read_box(launch, map, from);
  launch.later([=, &launch, own = map] {
    const std::vector<std::byte> box = early.empty() ? read_box(launch, own, from) : early;
    for (const std::size_t target : targets) {
      Block& block = launch.block(target);
      std::byte* shared = launch.shared_at(block, to, bytes);
      for (std::uint32_t offset = 0; offset < bytes; offset += 16)
        std::memcpy(shared + (swizzled(to + offset) - to), &box[offset], 16);
      barrier_complete(launch, block, barrier, bytes);
    }
  });
}

/// The box is read at any time until it is waited for.
inline void tma_store(Launch& launch, const CUtensorMap& map, std::uint32_t from, const BoxPlace& to) {
  if (map.base == nullptr) return launch.error("a store to no matrix");
  const auto store = std::make_shared<TensorStore>();
  const std::size_t place = launch.place().block;
  store->read = [=, &launch, own = map] {
    std::vector<Store> stores;
    Block& block = launch.block(place);
    visit_box(own, to, [&](std::uint32_t offset, int elements, std::byte* element) {
      const std::size_t size = static_cast<std::size_t>(elements) * 2;
      const std::uint32_t address = swizzled(from + offset);
      Store& each = stores.emplace_back(Store{element, {}, size});
      std::memcpy(each.bytes.data(), launch.shared_at(block, address, size), size);
      if (block.unfenced.at((address - shared_begin) / 16))
        launch.error("the TMA reads shared memory that was written without a fence");
      if (!launch.is_allowed(element, size)) launch.error("a store outside of the memory");
    });
    return stores;
  };
  launch.fiber().tensor_stores.back().push_back(store);
  launch.later([store] {
    if (!store->was_read) store->stores = store->read();
    store->was_read = true;
  });
}

inline void tma_store_commit(Launch& launch) { launch.fiber().tensor_stores.emplace_back(); }

inline void tma_store_wait_read(Launch& launch, std::size_t pending) {
  auto& groups = launch.fiber().tensor_stores;  // the last one is not committed
  for (std::size_t group = 0; group + pending + 1 < groups.size(); ++group) {
    for (const auto& store : groups[group]) {
      if (!store->was_read) store->stores = store->read();
      store->was_read = true;
    }
  }
}

inline void tma_store_wait_visible(Launch& launch, std::size_t pending) {
  tma_store_wait_read(launch, pending);
  Fiber& fiber = launch.fiber();
  for (auto& groups = fiber.tensor_stores; groups.size() > pending + 1; groups.pop_front()) {
    for (const auto& store : groups.front())
      fiber.stores.insert(fiber.stores.end(), store->stores.begin(), store->stores.end());
  }
}

inline void fence_shared_for_async(Launch& launch) {
  for (const std::uint32_t chunk : launch.fiber().unfenced) launch.block().unfenced.at(chunk) = false;
  launch.fiber().unfenced.clear();
}

}  // namespace flashoverlap::testing::emulator
