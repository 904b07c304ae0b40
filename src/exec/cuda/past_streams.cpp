#include "exec/cuda/past_streams.hpp"

#include <chrono>
#include <cstring>

#include "comm/bounded_wait.hpp"
#include "exec/cuda/stream_memory.hpp"

namespace flashoverlap {

PastStreams::PastStreams(const CudaStream& stream, std::size_t most_bytes)
    : stream_(stream), values_(most_bytes), apart_(most_bytes) {}

template <typename Enqueue>
bool PastStreams::passes(const Enqueue& enqueue) {
  constexpr std::chrono::milliseconds soon{200};
  const auto is_done = [this] { return is_over(cudaEventQuery(done_), "cudaEventQuery"); };
  try {
    if (is_pending_ && !is_done()) return false;
    is_pending_ = true;
    enqueue();
    FLASHOVERLAP_CUDA(cudaEventRecord(done_, stream_));
    is_pending_ = !holds_within(soon, is_done);
    return !is_pending_;
  } catch (const std::exception&) {
    return false;  // the GPU is gone, or the host's memory
  }
}

template <typename Work>
bool PastStreams::succeeds_apart(const Work& work) {
  try {
    if (!separate_) separate_ = std::make_unique<SeparateContext>();
    work(*separate_);
    return true;
  } catch (const WaitExpired&) {
    return false;
  } catch (const std::exception&) {
    separate_.reset();  // what has failed once may fail for ever
    return false;
  }
}

bool PastStreams::write(std::span<const WordToWrite> words) noexcept {
  const std::scoped_lock held(mutex_);
  const auto enqueue = [&] {
    StreamMemoryBatch batch;
    for (const WordToWrite& each : words) batch.write(each.word, each.value);
    batch.enqueue(stream_);
  };
  return words.empty() || passes(enqueue) ||
         succeeds_apart([&](SeparateContext& separate) { separate.write(words); });
}

bool PastStreams::read(void* to, const void* from, std::size_t bytes) noexcept {
  const std::scoped_lock held(mutex_);
  const auto enqueue = [&] {
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(values_.values().data(), from, bytes, cudaMemcpyDeviceToHost, stream_));
  };
  if (bytes == 0) return true;
  if (bytes > apart_.size()) return false;
  if (passes(enqueue)) {
    std::memcpy(to, values_.values().data(), bytes);
    return true;
  }
  const auto read = [&](SeparateContext& separate) { separate.read(apart_.data(), from, bytes); };
  if (!succeeds_apart(read)) return false;
  std::memcpy(to, apart_.data(), bytes);
  return true;
}

}  // namespace flashoverlap
