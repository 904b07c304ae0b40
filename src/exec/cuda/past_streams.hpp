#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/handles.hpp"
#include "cuda/pinned_array.hpp"
#include "exec/cuda/separate_context.hpp"

namespace flashoverlap {

/// Writes and reads GPU memory for a run that is given up, while streams may be stuck: by a stream if what it
/// does passes soon, and otherwise in a context of its own, which is made then. Never waits for long. Of the
/// GPU that is current; may be used by several threads.
class PastStreams {
 public:
  /// Reads at most `most_bytes`. The stream must outlive this.
  PastStreams(const CudaStream& stream, std::size_t most_bytes);

  /// In this order, of this GPU or of peers. False: they may not all be written yet.
  bool write(std::span<const WordToWrite> words) noexcept;
  /// Into host memory. False: the GPU does not answer.
  bool read(void* to, const void* from, std::size_t bytes) noexcept;

 private:
  /// Whether what `enqueue` gives to the stream is done soon. Gives it nothing where something is pending.
  template <typename Enqueue>
  bool passes(const Enqueue& enqueue);
  /// Whether `work`, which gets the context, succeeds.
  template <typename Work>
  bool succeeds_apart(const Work& work);

  const CudaStream& stream_;
  CudaEvent done_;
  bool is_pending_ = false;
  PinnedArray<std::byte> values_;  // what the stream has read
  std::vector<std::byte> apart_;   // and the context
  std::unique_ptr<SeparateContext> separate_;
  std::mutex mutex_;
};

}  // namespace flashoverlap
