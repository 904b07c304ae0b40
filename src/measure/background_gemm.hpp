/// The GEMM that communication meets in an overlap.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/handles.hpp"
#include "gemm/sm90/sm90_gemm.hpp"

namespace flashoverlap {

/// Keeps some of the current GPU's multiprocessors busy, on a stream of its own.
class BackgroundGemm {
 public:
  explicit BackgroundGemm(int multiprocessors);
  ~BackgroundGemm() { cudaStreamSynchronize(stream_); }
  BackgroundGemm(const BackgroundGemm&) = delete;
  BackgroundGemm& operator=(const BackgroundGemm&) = delete;

  /// Enqueues GEMMs that last at least so long.
  void keep_busy(double microseconds);
  void wait() const;

 private:
  using Element = std::uint16_t;
  static constexpr std::int64_t extent = 4096;  // of all three sides: a few waves

  DeviceArray<Element> a_;
  DeviceArray<Element> b_;
  DeviceArray<Element> c_;
  DeviceArray<std::uint32_t> counters_;
  CudaStream stream_;
  std::optional<Sm90Gemm> gemm_;
  double once_us_ = 0;
};

}  // namespace flashoverlap
