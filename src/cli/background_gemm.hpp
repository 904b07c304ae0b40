/// The GEMM that communication meets in an overlap.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "gemm/sm90_gemm.hpp"

namespace flashoverlap::cli {

/// Keeps some of the current GPU's multiprocessors busy, on a stream of its own.
class BackgroundGemm {
 public:
  explicit BackgroundGemm(int multiprocessors);
  ~BackgroundGemm();
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
  cudaStream_t stream_{};
  std::optional<Sm90Gemm> gemm_;
  double once_us_ = 0;
};

}  // namespace flashoverlap::cli
