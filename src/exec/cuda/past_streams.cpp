#include "exec/cuda/past_streams.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "comm/bounded_wait.hpp"
#include "cuda/on_device.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {
namespace {

constexpr std::chrono::milliseconds soon{200};
constexpr std::chrono::milliseconds longest_read{1000};

/// Whether what `enqueue` gives to the stream is done soon. Asks the stream itself: while another thread's
/// call holds up copies, events cannot be recorded either.
template <typename Enqueue>
bool passes(const CudaStream& stream, const Enqueue& enqueue) {
  const auto is_done = [&] { return is_over(cudaStreamQuery(stream), "cudaStreamQuery"); };
  try {
    if (!is_done()) return false;
    enqueue();
    return holds_within(soon, is_done);
  } catch (const CudaError&) {
    return false;
  }
}

}  // namespace

PastStreams::PastStreams(std::size_t most_bytes) : pinned_(most_bytes), values_(most_bytes) {}

bool PastStreams::is_reading() const {
  return reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void PastStreams::keep_reading_context() {
  if (reading_context_) contexts_.push_back(std::move(reading_context_));
}

bool PastStreams::write(std::span<const WordToWrite> words) noexcept {
  const std::scoped_lock held(mutex_);
  if (words.empty()) return true;
  try {
    const auto enqueue = [&] {
      StreamMemoryBatch batch;
      for (const WordToWrite& each : words) batch.write(each.word, each.value);
      batch.enqueue(writes_);
    };
    if (passes(writes_, enqueue)) return true;
    if (contexts_.empty()) contexts_.push_back(std::make_unique<SeparateContext>());
    contexts_.back()->write(words);
    return true;
  } catch (const std::exception&) {
    return false;  // the GPU is gone, or memory is used up
  }
}

void PastStreams::read_values(const void* from, std::size_t bytes) {
  const auto enqueue = [&] {
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(pinned_.values().data(), from, bytes, cudaMemcpyDeviceToHost, reads_));
  };
  if (passes(reads_, enqueue)) {
    std::memcpy(values_.data(), pinned_.values().data(), bytes);
    return;
  }
  if (!reading_context_) reading_context_ = std::make_unique<SeparateContext>();
  reading_context_->read(values_.data(), from, bytes);
}

bool PastStreams::read(void* to, const void* from, std::size_t bytes) noexcept {
  const std::scoped_lock held(mutex_);
  if (bytes == 0) return true;
  if (bytes > values_.size() || is_reading()) return false;
  try {
    int device = 0;
    FLASHOVERLAP_CUDA(cudaGetDevice(&device));
    keep_reading_context();  // of a read that took too long
    if (!contexts_.empty()) {
      reading_context_ = std::move(contexts_.back());
      contexts_.pop_back();
    }
    // Its thread may have to wait, with its context. What is written then needs another one.
    reading_ = std::async(std::launch::async, [=, this] {
      use_in_background(device);
      read_values(from, bytes);
    });
    if (reading_.wait_for(longest_read) != std::future_status::ready) return false;
    keep_reading_context();
    reading_.get();
    std::memcpy(to, values_.data(), bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace flashoverlap
