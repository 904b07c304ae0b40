/// The GEMM that runs concurrently with the communication of an overlap.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device_array.hpp"
#include "cuda/handles.hpp"
#include "gemm/gemm_kernel.hpp"

namespace flashoverlap {

/// Keeps some of the current GPU's multiprocessors busy, on a stream of its own.
class BackgroundGemm {
 public:
  explicit BackgroundGemm(int multiprocessors);
  ~BackgroundGemm() { cudaStreamSynchronize(stream_); }
  BackgroundGemm(const BackgroundGemm&) = delete;
  BackgroundGemm& operator=(const BackgroundGemm&) = delete;

  /// Enqueues GEMMs that take at least this long.
  void keep_busy(double microseconds);
  void wait() const;

 private:
  using Element = std::uint16_t;
  static constexpr std::int64_t extent = 4096;  // m, n and k: a few waves

  DeviceArray<Element> a_;
  DeviceArray<Element> b_;
  DeviceArray<Element> c_;
  DeviceArray<std::uint32_t> counters_;
  CudaStream stream_;
  std::unique_ptr<GemmKernel> gemm_;
  double once_us_ = 0;
};

}  // namespace flashoverlap
