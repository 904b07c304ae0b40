#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "cuda/error.hpp"

/// Owners of what the CUDA runtime hands out, for the GPU that is current when they are made.
namespace flashoverlap {

enum class StreamPriority { normal, high };

/// Not ordered with the default stream.
class CudaStream {
 public:
  explicit CudaStream(StreamPriority priority = StreamPriority::normal) {
    int least = 0;
    int greatest = 0;
    FLASHOVERLAP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    FLASHOVERLAP_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                                   priority == StreamPriority::high ? greatest : least));
  }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  operator cudaStream_t() const noexcept { return stream_; }

 private:
  cudaStream_t stream_{};
};

class CudaEvent {
 public:
  explicit CudaEvent(unsigned flags = cudaEventDisableTiming) {
    FLASHOVERLAP_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);  // else the next one who asks for errors would get one
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaEvent& operator=(CudaEvent&&) = delete;
  operator cudaEvent_t() const noexcept { return event_; }

 private:
  cudaEvent_t event_{};
};

/// Of two events that were recorded with timing and are over.
inline double microseconds_between(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  FLASHOVERLAP_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1000.0 * static_cast<double>(milliseconds);
}

/// Words of host memory that GPUs and the host read and write; zero at first.
class MappedWords {
 public:
  explicit MappedWords(std::size_t count) {
    FLASHOVERLAP_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&host_), count * sizeof(std::uint32_t),
                                    cudaHostAllocMapped | cudaHostAllocPortable));
    for (std::size_t index = 0; index < count; ++index) host_[index] = 0;
    FLASHOVERLAP_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), host_, 0));
  }
  ~MappedWords() { cudaFreeHost(host_); }
  MappedWords(const MappedWords&) = delete;
  MappedWords& operator=(const MappedWords&) = delete;

  std::uint32_t read(std::size_t index) const noexcept {
    return *static_cast<const volatile std::uint32_t*>(host_ + index);
  }
  void write(std::size_t index, std::uint32_t value) noexcept {
    *static_cast<volatile std::uint32_t*>(host_ + index) = value;
  }
  std::uint32_t* device(std::size_t index) const noexcept { return device_ + index; }

 private:
  std::uint32_t* host_ = nullptr;
  std::uint32_t* device_ = nullptr;
};

}  // namespace flashoverlap
