#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "cuda/error.hpp"

namespace flashoverlap {

/// In arrays that the calling thread has made, less those that it has freed.
inline std::int64_t& allocated_bytes() {
  thread_local std::int64_t bytes = 0;
  return bytes;
}

/// Memory of the current GPU, freed with its owner.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    if (count == 0) return;
    FLASHOVERLAP_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
    allocated_bytes() += static_cast<std::int64_t>(count * sizeof(T));
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) { set(values); }
  ~DeviceArray() {
    cudaFree(data_);
    if (data_ != nullptr) allocated_bytes() -= static_cast<std::int64_t>(count_ * sizeof(T));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  // Both have happened when they return: CUDA's calls may not have, and no other stream waits for them.
  /// The first ones: no more than there are.
  void set(std::span<const T> values) const {
    if (values.empty()) return;
    FLASHOVERLAP_CUDA(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(nullptr));
  }
  void set_bytes(int value) const {
    if (count_ == 0) return;
    FLASHOVERLAP_CUDA(cudaMemset(data_, value, count_ * sizeof(T)));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(nullptr));
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace flashoverlap
