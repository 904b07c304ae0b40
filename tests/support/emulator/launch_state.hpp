// What the emulator knows of a launch: threads, warps and blocks, and what is under way in each.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <typeinfo>
#include <vector>

namespace flashoverlap::testing::emulator {

constexpr int lanes = 32;
constexpr std::uint32_t shared_begin = 1024;  // an address of 0 would hide mistakes

/// What kernels read of their place.
struct Index {
  unsigned x = 0;
};
inline Index thread_index;
inline Index block_index;
inline Index grid_size;

/// What a lane brings to what its warp does together. Pointers are to what outlives the instruction.
struct Brought {
  std::array<void*, 4> pointers{};
  std::uint64_t number = 0;
  std::uint32_t address = 0;
};
using Lanes = std::array<Brought, lanes>;

struct Collective {
  const std::type_info* operation = nullptr;
  int arrived = 0;
  Lanes brought{};
};

struct Store {
  void* to;
  std::array<std::byte, 16> bytes;
  std::size_t size;
};

/// Where a thread is.
struct Place {
  std::size_t block = 0;
  std::size_t warp = 0;
  std::size_t lane = 0;
};

/// Threads that wait for each other.
struct Barrier {
  int arrived = 0;
  std::vector<Place> waiting;
  std::vector<Store> stores;  // before the barrier
};

/// A barrier in shared memory that counts arrivals and bytes.
struct TransactionBarrier {
  std::uint32_t arrivals = 0;
  std::uint32_t missing = 0;
  std::int64_t bytes = 0;
  std::uint32_t turns = 0;
  std::vector<Place> waiting;
};

struct AsyncCopy {
  std::uint32_t to;
  std::array<std::byte, 16> bytes;
};

/// A box on its way from shared memory.
struct TensorStore {
  std::function<std::vector<Store>()> read;
  std::vector<Store> stores;
  bool was_read = false;
};

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  std::size_t next_collective = 0;               // of the warp's, counted from the launch's first
  std::deque<std::vector<AsyncCopy>> copies{1};  // in groups; the last one is not committed
  std::deque<std::vector<std::shared_ptr<TensorStore>>> tensor_stores{1};
  std::vector<std::uint32_t> unfenced;  // chunks of shared memory that it has written
  bool has_polled = false;              // since its last fence for asynchronous loads
  std::vector<Store> stores;            // that nobody else sees yet
  bool ended = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#elif defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif
};

struct Warp {
  std::array<Fiber, lanes> fibers;
  std::uint32_t runnable = ~0u;
  std::deque<Collective> collectives;                          // that not all lanes have come to
  std::size_t done = 0;                                        // collectives
  std::deque<std::vector<std::function<void()>>> products{1};  // in groups; the last one is not committed
  std::vector<Store> arriving;                                 // stores of lanes that have come to __syncwarp
  std::vector<Store> ordered;                                  // and those before one that is over
};

/// What a kernel is launched with.
struct Grid {
  int blocks = 0;
  int cluster = 1;  ///< blocks that reach each other's shared memory
  int threads = lanes;
  std::size_t shared_bytes = 0;
  std::function<void()> kernel;
};

struct Block {
  const Grid* grid = nullptr;
  std::size_t index = 0;             // in its grid
  std::size_t first_of_cluster = 0;  // among all blocks
  std::vector<std::byte> shared;
  std::vector<Warp> warps;
  std::map<int, Barrier> barriers;
  std::vector<Store> ordered;  // stores before a barrier that is over
  std::map<std::uint32_t, TransactionBarrier> transaction_barriers;
  std::vector<bool> unfenced;  // by chunk of 16 bytes
};

struct Counts {
  std::uint64_t loads = 0;  ///< of 8 rows of 16 bytes each from or to shared memory
  std::uint64_t copies = 0;
  std::uint64_t conflicts = 0;  ///< 8 rows or copies that do not come from or go to all banks
  std::uint64_t products = 0;
};

inline void move_to(std::vector<Store>& end, std::vector<Store>& stores) {
  end.insert(end.end(), stores.begin(), stores.end());
  stores.clear();
}

}  // namespace flashoverlap::testing::emulator
