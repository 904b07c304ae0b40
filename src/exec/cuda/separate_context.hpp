#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace flashoverlap {

/// A word of GPU memory and what it is to hold.
struct WordToWrite {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;
};

/// A CUDA context of its own, for what must pass while everything else is stuck. All streams of a context
/// share a few connections to the GPU (CUDA_DEVICE_MAX_CONNECTIONS, by default 8), and one that waits holds
/// up all work that is enqueued after it on its connection, whatever the streams' priorities. Making it takes
/// about 0.15 s, and about 550 MB of the GPU's memory as long as it lives. Destroying it waits for the GPU.
class SeparateContext {
 public:
  /// Of the GPU that is current. Throws `CudaError`.
  SeparateContext();
  ~SeparateContext();
  SeparateContext(const SeparateContext&) = delete;
  SeparateContext& operator=(const SeparateContext&) = delete;

  /// One word after the other, of this GPU; returns when they are written. Passes while another thread makes
  /// or frees memory, streams or events, and waits for the GPU with that. Throws `CudaError`, or
  /// `WaitExpired` after a second. Not by several threads at once, as `read`.
  void write(std::span<const WordToWrite> words);
  /// `bytes` of GPU memory into host memory, which must live until it is over. Throws as `write`, but waits
  /// for what another thread does like that, however long it takes.
  void read(void* to, const void* from, std::size_t bytes);

 private:
  template <typename Work>
  void run(const Work& work) const;

  int device_ = 0;
  CUcontext context_{};
};

}  // namespace flashoverlap
