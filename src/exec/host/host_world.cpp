#include "exec/host/host_world.hpp"

#include <atomic>
#include <thread>

#include "exec/host/message_stream.hpp"
#include "exec/host/tile_worker.hpp"

namespace flashoverlap {

std::vector<std::vector<Matrix>> HostWorld::run(std::span<const HostOperands> runs) {
  std::vector<std::vector<Matrix>> results(runs.size(),
                                           std::vector<Matrix>(static_cast<std::size_t>(ranks_.size())));
  {
    std::vector<std::jthread> threads;
    ranks_.guard([&] {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        threads.emplace_back([&, rank, r = static_cast<std::size_t>(rank)] {
          ranks_.guard([&] {
            for (std::size_t i = 0; i < runs.size(); ++i)
              results[i][r] = run_rank(rank, runs[i].a[r], runs[i].b[r]);
          });
        });
      }
    });
  }
  ranks_.finish();
  return results;
}

Matrix HostWorld::run_rank(int rank, const Matrix& a, const Matrix& b) {
  HostRank& own = ranks_.at(rank);
  const std::size_t tiles = own.plan().tiles.size();
  std::atomic<std::size_t> next_tile = 0;
  // Relaxed, so that claiming a tile orders nothing: see HostCounters::raise.
  const auto claim = [&] { return next_tile.fetch_add(1, std::memory_order_relaxed); };
  const auto work = [&] {
    TileWorker worker(ranks_, rank);
    for (std::size_t tile = claim(); tile < tiles; tile = claim()) worker.run(tile);
  };
  {
    std::vector<std::jthread> workers;
    ranks_.guard([&] {
      ranks_.sleep(rank, DelayPoint::run_begin, 0);
      own.bind(a, b);
      own.poison_workspace();
      for (int worker = 0; worker < ranks_.options().workers_per_rank; ++worker) {
        workers.emplace_back([&] { ranks_.guard(work); });
      }
      for (std::size_t message = 0; message < own.plan().messages.size(); ++message) {
        run_message(ranks_, rank, message);
      }
    });
  }
  ranks_.throw_if_stopped();
  own.tiles_done().reset(0);
  return own.readable(BufferRole::out);
}

}  // namespace flashoverlap
