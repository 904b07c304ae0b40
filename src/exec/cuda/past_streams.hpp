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
/// its own, which is made then. Of the GPU that is current; may be used by several threads.
class PastStreams {
 public:
  /// Reads at most `most_bytes`.
  explicit PastStreams(std::size_t most_bytes);
  /// Waits for a `read` that is still under way, and for the GPU if a context was made.
  ~PastStreams() = default;

  /// In this order. False: they may not all be written yet. Takes at most about a second.
  bool write(std::span<const WordToWrite> words) noexcept;
  /// Into host memory. False: the GPU does not answer, or another thread's call of CUDA holds that up. Takes
  /// at most about a second.
  bool read(void* to, const void* from, std::size_t bytes) noexcept;

 private:
  using Context = std::unique_ptr<SeparateContext>;

  /// By a thread of its own, which may have to wait for long: into `values_`.
  void read_values(const void* from, std::size_t bytes);
  bool is_reading() const;
  void keep_reading_context();

  const CudaStream writes_{StreamPriority::high};
  const CudaStream reads_{StreamPriority::high};
  PinnedArray<std::byte> pinned_;  // what the stream has read
  std::vector<std::byte> values_;
  std::vector<Context> contexts_;  // kept to the end, as destroying one waits for the GPU
  Context reading_context_;        // the reading thread's, as long as it reads
  std::mutex mutex_;
  std::future<void> reading_;  // the last, so that it ends before the others do
};

}  // namespace flashoverlap
