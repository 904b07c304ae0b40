#include "exec/cuda/past_streams.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "comm/bounded_wait.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {
namespace {

constexpr std::chrono::milliseconds soon{200};
constexpr std::chrono::milliseconds longest_read{1000};

std::unique_ptr<SeparateContext> or_new(std::unique_ptr<SeparateContext> separate) {
  return separate ? std::move(separate) : std::make_unique<SeparateContext>();
}

}  // namespace

PastStreams::PastStreams(const CudaStream& stream, std::size_t most_bytes)
    : stream_(stream), pinned_(most_bytes), values_(most_bytes) {}

/// Asks the stream itself: while another thread's call holds up copies, events cannot be recorded either.
template <typename Enqueue>
bool PastStreams::passes(const Enqueue& enqueue) const {
  const auto is_done = [this] { return is_over(cudaStreamQuery(stream_), "cudaStreamQuery"); };
  try {
    if (!is_done()) return false;
    enqueue();
    return holds_within(soon, is_done);
  } catch (const CudaError&) {
    return false;
  }
}

bool PastStreams::is_reading() const {
  return reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool PastStreams::write(std::span<const WordToWrite> words) noexcept {
  const std::scoped_lock held(mutex_);
  if (words.empty()) return true;
  try {
    const auto enqueue = [&] {
      StreamMemoryBatch batch;
      for (const WordToWrite& each : words) batch.write(each.word, each.value);
      batch.enqueue(stream_);
    };
    if (!is_reading() && passes(enqueue)) return true;
    separate_ = or_new(std::move(separate_));
    separate_->write(words);
    return true;
  } catch (const std::exception&) {
    return false;  // the GPU is gone, or memory is used up
  }
}

std::unique_ptr<SeparateContext> PastStreams::read_values(const void* from, std::size_t bytes,
                                                          std::unique_ptr<SeparateContext> separate) {
  const auto enqueue = [&] {
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(pinned_.values().data(), from, bytes, cudaMemcpyDeviceToHost, stream_));
  };
  if (passes(enqueue)) {
    std::memcpy(values_.data(), pinned_.values().data(), bytes);
    return separate;
  }
  separate = or_new(std::move(separate));
  separate->read(values_.data(), from, bytes);
  return separate;
}

bool PastStreams::read(void* to, const void* from, std::size_t bytes) noexcept {
  const std::scoped_lock held(mutex_);
  if (bytes == 0) return true;
  if (bytes > values_.size() || is_reading()) return false;
  try {
    int device = 0;
    FLASHOVERLAP_CUDA(cudaGetDevice(&device));
    // Its thread may have to wait, with its context. What is written then needs another one.
    reading_ = std::async(std::launch::async, [=, this, separate = std::move(separate_)]() mutable {
      FLASHOVERLAP_CUDA(cudaSetDevice(device));
      return read_values(from, bytes, std::move(separate));
    });
    if (reading_.wait_for(longest_read) != std::future_status::ready) return false;
    separate_ = reading_.get();
    std::memcpy(to, values_.data(), bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace flashoverlap
