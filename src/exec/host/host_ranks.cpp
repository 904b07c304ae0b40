#include "exec/host/host_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "data_type/pitch.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24);

const HostOptions& checked(const HostOptions& options) {
  require(options.workers_per_rank >= 1, "workers_per_rank", options.workers_per_rank, "must be at least 1");
  require(options.wait_limit.count() >= 0 && options.wait_limit <= longest_wait, "wait_limit",
          options.wait_limit.count(), "must be between 0 ms and a day");
  require(options.max_delay.count() >= 0 && options.max_delay <= longest_wait, "max_delay",
          options.max_delay.count(), "must be between 0 us and a day");
  return options;
}

void require_inside(const Matrix& matrix, const Region& region) {
  require(region.row >= 0 && region.rows >= 0 && region.row <= matrix.rows() - region.rows,
          fmt::format("rows of buffer {}", name(region.buffer)),
          fmt::format("{} from {} on", region.rows, region.row),
          fmt::format("must lie in the buffer's {}", matrix.rows()));
}

}  // namespace

HostRank::HostRank(Plan plan, const HostOptions& options, RunProgress& progress)
    : plan_(std::move(plan)),
      counters_(plan_.counters, options.wait_limit, progress),
      tiles_done_({{.target = static_cast<std::int32_t>(plan_.tiles.size())}}, options.wait_limit, progress) {
  for (const BufferRole role :
       {BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered}) {
    const Buffer& buffer = plan_.buffer(role);
    const std::int64_t pitch =
        role == BufferRole::out ? checked_pitch("out_pitch", options.out_pitch, buffer.cols) : 0;
    workspace_[static_cast<std::size_t>(role)] =
        Matrix(plan_.problem.data_type, buffer.rows, buffer.cols, pitch);
  }
}

void HostRank::bind(const Matrix& a, const Matrix& b) {
  a_ = &a;
  b_ = &b;
}

void HostRank::poison_workspace() {
  for (Matrix& buffer : workspace_) buffer.poison();
}

const Matrix& HostRank::readable(BufferRole role) const {
  if (role == BufferRole::a) return *a_;
  if (role == BufferRole::b) return *b_;
  return workspace_[static_cast<std::size_t>(role)];
}

Matrix& HostRank::writable(BufferRole role) {
  require(role != BufferRole::a && role != BufferRole::b, "buffer", name(role),
          "is the caller's, not to be written");
  return workspace_[static_cast<std::size_t>(role)];
}

std::size_t HostRank::bytes_of(const Region& region) const {
  const Matrix& matrix = readable(region.buffer);
  require_inside(matrix, region);
  return static_cast<std::size_t>(region.rows * matrix.row_bytes());
}

std::vector<std::byte> HostRank::read(const Region& region) const {
  std::vector<std::byte> bytes(bytes_of(region));
  const Matrix& matrix = readable(region.buffer);
  for (std::int64_t row = 0; row < region.rows; ++row)
    std::copy_n(matrix.row(region.row + row), matrix.row_bytes(), bytes.data() + row * matrix.row_bytes());
  return bytes;
}

void HostRank::write(const Region& region, std::span<const std::byte> bytes) {
  Matrix& matrix = writable(region.buffer);
  for (std::int64_t row = 0; row < region.rows; ++row)
    std::copy_n(bytes.data() + row * matrix.row_bytes(), matrix.row_bytes(), matrix.row(region.row + row));
}

HostRanks::HostRanks(std::vector<Plan> plans, const HostOptions& options)
    : options_(checked(options)),
      communicator_(static_cast<int>(plans.size()), plans.at(0).problem.data_type, options.wait_limit,
                    &progress_) {
  for (Plan& plan : plans) ranks_.emplace_back(std::move(plan), options, progress_);
}

void HostRanks::sleep(int rank, DelayPoint point, std::size_t index) {
  if (options_.max_delay.count() == 0) return;
  const RunProgress::Work work(progress_);
  std::this_thread::sleep_for(random_delay(options_, rank, point, index));
}

void HostRanks::raise(const Raise& raise, std::int32_t by) {
  HostRank& owner = at(raise.rank);
  const std::int32_t value = owner.counters().raise(raise.counter, by);
  const std::int32_t target = owner.counters().target(raise.counter);
  if (value > target) {
    throw Error(fmt::format("rank {}: {} raised to {}, beyond its target {}", raise.rank,
                            describe_counter(owner.plan(), raise.counter), value, target));
  }
}

void HostRanks::finish() {
  const std::exception_ptr error = std::exchange(error_, nullptr);
  if (error) {
    restart();
    std::rethrow_exception(error);
  }
  try {
    require_counters_at_zero();
  } catch (...) {
    restart();
    throw;
  }
}

WaitExpired HostRanks::wait_expired(int rank, std::int32_t counter, const std::string& step) const {
  const HostCounters& counters = at(rank).counters();
  return WaitExpired(fmt::format("{} waits for {}, found {} of {}: no rank has done anything for {} ms", step,
                                 describe_counter(at(rank).plan(), counter), counters.value(counter),
                                 counters.target(counter), counters.wait_limit().count()));
}

void HostRanks::fail(const std::exception_ptr& error) {
  {
    const std::scoped_lock held(error_mutex_);
    if (!error_) error_ = error;
  }
  stopped_ = true;
  for (HostRank& rank : ranks_) {
    rank.counters().stop();
    rank.tiles_done().stop();
  }
  communicator_.stop();
}

void HostRanks::require_counters_at_zero() const {
  for (const HostRank& rank : ranks_) {
    for (std::int32_t counter = 0; counter < std::ssize(rank.plan().counters); ++counter) {
      const std::int32_t value = rank.counters().value(counter);
      if (value != 0) {
        throw Error(fmt::format("rank {}: {} is {} after the run, expected 0", rank.plan().rank,
                                describe_counter(rank.plan(), counter), value));
      }
    }
  }
}

void HostRanks::restart() {
  for (HostRank& rank : ranks_) {
    rank.counters().restart();
    rank.tiles_done().restart();
  }
  communicator_.restart();
  stopped_ = false;
}

}  // namespace flashoverlap
