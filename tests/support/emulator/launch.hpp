// Runs a kernel's own source on the host: each GPU thread is a fiber, and what the GPU promises is what it
// gets, no more. What a warp does together happens when the last of its lanes has come to it. What the GPU
// does on its own happens at any time until it is waited for. Stores are seen by others only after a barrier
// or a release. Warps take turns in a random order, and one may run far ahead of the others.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <typeinfo>
#include <vector>

#include "support/emulator/launch_state.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace flashoverlap::testing::emulator {

class Launch {
 public:
  explicit Launch(std::uint64_t seed) : engine_(seed) {}

  /// Memory that the kernel may read and write. All else is an error.
  void allow(const void* begin, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    if (bytes > 0) allowed_.emplace_back(first, first + bytes);
  }

  /// Called before a counter is raised, with what others see then.
  std::function<void(std::uint32_t*)> on_raise;
  /// Called whenever a counter is read.
  std::function<void(const std::uint32_t*)> on_poll;

  /// Runs all blocks of all grids at the same time.
  void run(const std::vector<Grid>& grids);

  const std::vector<std::string>& errors() const { return errors_; }

  // For the instructions.

  Counts counts;

  Block& block() { return blocks_[place_.block]; }
  Block& block(std::size_t index) { return blocks_.at(index); }
  Warp& warp() { return block().warps[place_.warp]; }
  Fiber& fiber() { return warp().fibers[place_.lane]; }
  const Place& place() const { return place_; }

  void error(const std::string& message) {
    if (errors_.size() < 10 && std::ranges::find(errors_, message) == errors_.end())
      errors_.push_back(message);
  }
  bool draw() { return engine_() % 2 == 0; }
  std::uint64_t now() { return time_ += 100; }

  /// What the GPU does on its own: at any time from now on, and at last when nothing else is left to do.
  void later(std::function<void()> work) { in_flight_.push_back(std::move(work)); }

  /// `act` on what all lanes bring, when the last of them has come. If the instruction `blocks`, no lane goes
  /// on before.
  template <typename Act>
  void together(bool blocks, const Brought& own, const Act& act);
  std::uint64_t shuffle(std::uint64_t value, int source);
  /// All lanes of the warp come here before one goes on; `synchronize_warp` also orders what they have
  /// stored.
  void meet();
  void synchronize_warp();
  /// Until `threads` threads have come to `barrier`.
  void synchronize(Barrier& barrier, int threads);
  void synchronize_block() {
    synchronize(block().barriers[0], static_cast<int>(block().warps.size()) * lanes);
  }
  /// Until woken.
  void sleep();
  void wake(std::vector<Place>& waiting);
  void poll(const std::uint32_t* counter);
  /// Others go on before this thread looks at memory again.
  void pause();

  void store(void* to, const void* from, std::size_t size);
  /// That others may see before what was stored earlier.
  void store_at_once(void* to, const void* from, std::size_t size);
  void load(void* to, const void* from, std::size_t size);
  /// What this thread has stored is visible to all.
  void fence();
  void raise(std::uint32_t* counter);
  void raise_fenced(std::uint32_t* counter);
  /// What this thread does at the end of a kernel: all that it has stored is visible.
  void finish();
  bool is_allowed(const void* begin, std::size_t size) const;
  std::byte* shared_at(Block& block, std::uint32_t address, std::size_t size);
  std::byte* shared_at(std::uint32_t address, std::size_t size) { return shared_at(block(), address, size); }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{256} << 10;

  void resume(const Place& place);
  void yield();
  static void enter();
  void add(const Grid& grid);
  static void make(Fiber& fiber);
  static void make_visible(std::vector<Store>& stores);

  std::mt19937_64 engine_;
  std::vector<std::pair<const std::byte*, const std::byte*>> allowed_;
  std::vector<Block> blocks_;
  ucontext_t scheduler_{};
  Place place_;               // of the fiber that runs
  bool leaves_warp_ = false;  // it has polled
  std::vector<std::function<void()>> in_flight_;
  std::uint64_t time_ = 0;
  std::vector<std::string> errors_;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
#elif defined(__SANITIZE_THREAD__)
  void* scheduler_tsan_ = nullptr;
#endif
};

/// The launch that is under way.
inline Launch* current = nullptr;

inline void Launch::make(Fiber& fiber) {
  fiber.stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = stack_bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Launch::enter, 0);
#if defined(__SANITIZE_THREAD__)
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

inline void Launch::add(const Grid& grid) {
  const std::size_t first = blocks_.size();
  for (std::size_t index = 0; index < static_cast<std::size_t>(grid.blocks); ++index) {
    Block& block = blocks_.emplace_back();
    block.grid = &grid;
    block.index = index;
    block.first_of_cluster = first + index - index % static_cast<std::size_t>(grid.cluster);
    block.shared.assign(grid.shared_bytes, std::byte{0xff});  // no number
    block.unfenced.assign(grid.shared_bytes / 16, false);
    block.warps = std::vector<Warp>(static_cast<std::size_t>(grid.threads / lanes));
    for (Warp& warp : block.warps) {
      for (Fiber& fiber : warp.fibers) make(fiber);
    }
  }
}

inline void Launch::run(const std::vector<Grid>& grids) {
  current = this;
  blocks_.clear();
  for (const Grid& grid : grids) add(grid);
#if defined(__SANITIZE_THREAD__)
  scheduler_tsan_ = __tsan_get_current_fiber();
#endif
  std::vector<Place> runnable;
  for (;;) {
    runnable.clear();
    for (std::size_t each = 0; each < blocks_.size(); ++each) {
      for (std::size_t warp = 0; warp < blocks_[each].warps.size(); ++warp) {
        if (blocks_[each].warps[warp].runnable != 0) runnable.push_back({each, warp, 0});
      }
    }
    if (runnable.empty() && in_flight_.empty()) break;
    if (!in_flight_.empty() && (runnable.empty() || engine_() % 4 == 0)) {
      std::swap(in_flight_[engine_() % in_flight_.size()], in_flight_.back());
      const std::function<void()> work = std::move(in_flight_.back());
      in_flight_.pop_back();
      work();
      continue;
    }
    Place chosen = runnable[engine_() % runnable.size()];
    leaves_warp_ = false;
    const Warp& warp = blocks_[chosen.block].warps[chosen.warp];
    while (warp.runnable != 0 && !leaves_warp_) {
      chosen.lane = static_cast<std::size_t>(std::countr_zero(warp.runnable));
      resume(chosen);
    }
  }
  for (Block& block : blocks_) {
    for (Warp& warp : block.warps) {
      for (Fiber& fiber : warp.fibers) {
        if (!fiber.ended) error("a thread waits for others for ever");
#if defined(__SANITIZE_THREAD__)
        __tsan_destroy_fiber(fiber.tsan);
#endif
      }
    }
  }
  current = nullptr;
}

inline void Launch::finish() {
  Fiber& self = fiber();
  self.has_polled = false;  // asynchronous loads of the next kernel come after all of this one
  for (const auto& group : self.tensor_stores) {
    for (const auto& store : group) {
      if (!store->was_read) error("a thread ends before what it stores has been read");
      make_visible(store->stores);
    }
  }
  self.tensor_stores = std::deque<std::vector<std::shared_ptr<TensorStore>>>(1);
  fence();
}

inline void Launch::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &current->scheduler_stack_, &current->scheduler_stack_bytes_);
#endif
  current->block().grid->kernel();
  current->finish();
  current->fiber().ended = true;
  current->sleep();
}

inline void Launch::resume(const Place& place) {
  place_ = place;
  const Block& resumed = blocks_[place.block];
  grid_size = {static_cast<unsigned>(resumed.grid->blocks)};
  block_index = {static_cast<unsigned>(resumed.index)};
  thread_index = {static_cast<unsigned>(place.warp * lanes + place.lane)};
  Fiber& next = fiber();
#if defined(__SANITIZE_ADDRESS__)
  void* own = nullptr;
  __sanitizer_start_switch_fiber(&own, next.stack.get(), stack_bytes);
  swapcontext(&scheduler_, &next.context);
  __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
#else
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(next.tsan, 0);
#endif
  swapcontext(&scheduler_, &next.context);
#endif
}

/// Back to the scheduler, which resumes this fiber when it is runnable.
inline void Launch::yield() {
  Fiber& left = fiber();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(left.ended ? nullptr : &left.fake_stack, scheduler_stack_,
                                 scheduler_stack_bytes_);
  swapcontext(&left.context, &scheduler_);
  __sanitizer_finish_switch_fiber(left.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#else
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(scheduler_tsan_, 0);
#endif
  swapcontext(&left.context, &scheduler_);
#endif
}

inline void Launch::sleep() {
  warp().runnable &= ~(1u << place_.lane);
  yield();
}

inline void Launch::wake(std::vector<Place>& waiting) {
  for (const Place& each : waiting) blocks_[each.block].warps[each.warp].runnable |= 1u << each.lane;
  waiting.clear();
}

inline void Launch::poll(const std::uint32_t* counter) {
  if (on_poll) on_poll(counter);
  fiber().has_polled = true;
  pause();
}

inline void Launch::pause() {
  leaves_warp_ = true;
  yield();
}

inline void Launch::synchronize(Barrier& barrier, int threads) {
  move_to(barrier.stores, warp().ordered);
  move_to(barrier.stores, fiber().stores);
  if (++barrier.arrived < threads) {
    barrier.waiting.push_back(place_);
    sleep();
    return;
  }
  barrier.arrived = 0;
  move_to(block().ordered, barrier.stores);
  wake(barrier.waiting);
}

template <typename Act>
void Launch::together(bool blocks, const Brought& own, const Act& act) {
  Warp& all = warp();
  const std::size_t index = fiber().next_collective++ - all.done;
  if (index == all.collectives.size()) all.collectives.push_back({.operation = &typeid(Act)});
  Collective& collective = all.collectives[index];
  if (*collective.operation != typeid(Act)) error("lanes of a warp do different things together");
  collective.brought[place_.lane] = own;
  if (++collective.arrived < lanes) {
    if (blocks) sleep();
    return;
  }
  // All collectives before this one are done.
  act(collective.brought);
  if (blocks) all.runnable = ~0u;
  all.collectives.pop_front();
  ++all.done;
}

inline void Launch::meet() {
  together(true, {}, [](const Lanes&) {});
}

inline void Launch::synchronize_warp() {
  move_to(warp().arriving, fiber().stores);
  together(true, {}, [this](const Lanes&) { move_to(warp().ordered, warp().arriving); });
}

inline std::uint64_t Launch::shuffle(std::uint64_t value, int source) {
  const std::uint64_t own = value;
  together(true, {{&value}, own, static_cast<std::uint32_t>(source)}, [](const Lanes& all) {
    for (const Brought& lane : all) *static_cast<std::uint64_t*>(lane.pointers[0]) = all[lane.address].number;
  });
  return *const_cast<volatile std::uint64_t*>(&value);
}

inline void Launch::store(void* to, const void* from, std::size_t size) {
  if (!is_allowed(to, size)) error("a store outside of the memory");
  if (reinterpret_cast<std::uintptr_t>(to) % size != 0) error("a store that is not aligned");
  Store& store = fiber().stores.emplace_back(Store{to, {}, size});
  std::memcpy(store.bytes.data(), from, size);
}

inline void Launch::store_at_once(void* to, const void* from, std::size_t size) {
  store(to, from, size);
  std::vector<Store> last{std::move(fiber().stores.back())};
  fiber().stores.pop_back();
  make_visible(last);
}

inline void Launch::load(void* to, const void* from, std::size_t size) {
  if (reinterpret_cast<std::uintptr_t>(from) % size != 0) error("a load that is not aligned");
  if (!is_allowed(from, size)) {
    error("a load outside of the memory");
  } else {
    std::memcpy(to, from, size);
  }
}

inline void Launch::fence() {
  make_visible(block().ordered);
  make_visible(warp().ordered);
  make_visible(fiber().stores);
}

inline void Launch::raise(std::uint32_t* counter) {
  fence();
  raise_fenced(counter);
}

inline void Launch::raise_fenced(std::uint32_t* counter) {
  if (on_raise) on_raise(counter);
  ++*counter;
}

inline void Launch::make_visible(std::vector<Store>& stores) {
  for (const Store& store : stores) std::memcpy(store.to, store.bytes.data(), store.size);
  stores.clear();
}

inline bool Launch::is_allowed(const void* begin, std::size_t size) const {
  const auto* const first = static_cast<const std::byte*>(begin);
  return std::ranges::any_of(
      allowed_, [&](const auto& range) { return first >= range.first && first + size <= range.second; });
}

inline std::byte* Launch::shared_at(Block& block, std::uint32_t address, std::size_t size) {
  static std::array<std::byte, 1024> nowhere;
  const std::size_t offset = std::size_t{address} - shared_begin;
  if (address < shared_begin || offset + size > block.shared.size() ||
      offset % std::min(size, std::size_t{128}) != 0) {
    error("an address that is not in shared memory or not aligned");
    return nowhere.data();
  }
  return block.shared.data() + offset;
}

}  // namespace flashoverlap::testing::emulator
