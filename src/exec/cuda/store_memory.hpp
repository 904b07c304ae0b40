#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device_array.hpp"
#include "cuda/pinned_array.hpp"
#include "exec/cuda/message_kernels.hpp"

namespace flashoverlap {

/// The rectangles that a message list stores, in the memory of the current GPU.
class StoreMemory {
 public:
  StoreMemory() = default;
  /// With room for `replaceable` rectangles in place of these, where other routes may come; 0 where none do.
  StoreMemory(std::span<const StoredRectangle> rectangles, std::size_t replaceable);

  const StoredRectangle* rectangles() const noexcept { return rectangles_.data(); }
  std::uint32_t* blocks_done() const noexcept { return blocks_done_.data(); }  ///< with each rectangle

  /// On a stream; the replacement before it is in place. Throws `InvalidArgument` for more than there is room
  /// for.
  void replace(std::span<const StoredRectangle> rectangles, cudaStream_t stream);

 private:
  DeviceArray<StoredRectangle> rectangles_;
  DeviceArray<std::uint32_t> blocks_done_;
  PinnedArray<StoredRectangle> replacement_;
};

}  // namespace flashoverlap
