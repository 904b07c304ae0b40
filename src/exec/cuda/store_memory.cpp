#include "exec/cuda/store_memory.hpp"

#include <algorithm>

#include "cuda/error.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {

StoreMemory::StoreMemory(std::span<const StoredRectangle> rectangles, std::size_t replaceable)
    : rectangles_(std::max(rectangles.size(), replaceable)),
      blocks_done_(rectangles_.size()),
      replacement_(replaceable) {
  blocks_done_.set_bytes(0);
  rectangles_.set(rectangles);
}

void StoreMemory::replace(std::span<const StoredRectangle> rectangles, cudaStream_t stream) {
  const std::span<StoredRectangle> room = replacement_.values();
  require(rectangles.size() <= room.size(), "stored rectangles", rectangles.size(),
          fmt::format("must be at most {}, for which there is memory", room.size()));
  if (rectangles.empty()) return;
  std::ranges::copy(rectangles, room.begin());
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(rectangles_.data(), room.data(), rectangles.size_bytes(),
                                    cudaMemcpyHostToDevice, stream));
}

}  // namespace flashoverlap
