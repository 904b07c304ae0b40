#include "measure/captured_runs.hpp"

#include <algorithm>
#include <cmath>

namespace flashoverlap {
namespace {

int runs_that_take(double least_us, double once_us) {
  constexpr double most = 256;
  return static_cast<int>(std::clamp(std::ceil(least_us / once_us), 1.0, most));
}

}  // namespace

CapturedRuns::CapturedRuns(const GpuRank& gpu, double once_us, double least_us,
                           const std::function<void(int n)>& run)
    : gpu_(gpu),
      once_us_(gpu.maximum(once_us)),
      count_(runs_that_take(least_us, once_us_)),
      graph_(gpu.stream(), [&] {
        for (int n = 0; n < count_; ++n) run(n);
      }) {}

double CapturedRuns::measure_us() const {
  return gpu_.elapsed_us([this] { graph_.launch(gpu_.stream()); }) / count_;
}

void CapturedRuns::settle(double microseconds) const {
  for (double us = 0; us < microseconds; us += once_us_ * count_) measure_us();
}

}  // namespace flashoverlap
