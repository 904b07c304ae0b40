#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "cuda/error.hpp"

namespace flashoverlap {

/// Host memory that the GPU copies from and to without waiting for it, freed with its owner.
template <typename T>
class PinnedArray {
 public:
  PinnedArray() = default;
  explicit PinnedArray(std::size_t count) : count_(count) {
    if (count > 0)
      FLASHOVERLAP_CUDA(
          cudaHostAlloc(reinterpret_cast<void**>(&data_), count * sizeof(T), cudaHostAllocPortable));
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(PinnedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  std::span<T> values() const noexcept { return {data_, count_}; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace flashoverlap
