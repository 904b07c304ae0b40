#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/handles.hpp"
#include "cuda/pinned_array.hpp"
#include "exec/cuda/separate_context.hpp"

namespace flashoverlap {

/// Writes and reads GPU memory for a run that is given up, while streams may be stuck, and other threads in
/// calls of CUDA that wait for them: by a stream if what it does passes soon, and otherwise in a context of
/// its own, which is made then. Never waits for long. Of the GPU that is current; may be used by several
/// threads.
class PastStreams {
 public:
  /// Reads at most `most_bytes`. The stream must outlive this.
  PastStreams(const CudaStream& stream, std::size_t most_bytes);
  /// Waits for a `read` that is still under way.
  ~PastStreams() = default;

  /// In this order. False: they may not all be written yet.
  bool write(std::span<const WordToWrite> words) noexcept;
  /// Into host memory. False: the GPU does not answer, or another thread's call of CUDA holds that up.
  bool read(void* to, const void* from, std::size_t bytes) noexcept;

 private:
  /// Whether what `enqueue` gives to the stream is done soon.
  template <typename Enqueue>
  bool passes(const Enqueue& enqueue) const;
  /// Into `values_`. The context that it needed, if any.
  std::unique_ptr<SeparateContext> read_values(const void* from, std::size_t bytes,
                                               std::unique_ptr<SeparateContext> separate);
  bool is_reading() const;

  const CudaStream& stream_;
  PinnedArray<std::byte> pinned_;  // what the stream has read
  std::vector<std::byte> values_;
  std::unique_ptr<SeparateContext> separate_;
  std::mutex mutex_;
  std::future<std::unique_ptr<SeparateContext>> reading_;  // the last, so that it ends before the others do
};

}  // namespace flashoverlap
