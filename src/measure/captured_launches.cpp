#include "measure/captured_launches.hpp"

#include <algorithm>
#include <cmath>

namespace flashoverlap {
namespace {

std::size_t fitting_count(const SetLaunch& launch, std::size_t sets, CudaTimer& timer, cudaStream_t stream) {
  constexpr double least_us = 2000;
  constexpr double most = 200;
  launch(0, stream);
  const double once_us = timer.microseconds(stream, [&] { launch(1 % sets, stream); });
  return static_cast<std::size_t>(std::clamp(std::ceil(least_us / once_us), 1.0, most));
}

}  // namespace

CapturedLaunches::CapturedLaunches(const SetLaunch& launch, std::size_t sets, CudaTimer& timer,
                                   cudaStream_t stream)
    : count_(fitting_count(launch, sets, timer, stream)), graph_(stream, [&] {
        for (std::size_t each = 0; each < count_; ++each) launch(each % sets, stream);
      }) {}

double CapturedLaunches::microseconds(CudaTimer& timer, cudaStream_t stream) const {
  return timer.microseconds(stream, [&] { graph_.launch(stream); }) / static_cast<double>(count_);
}

}  // namespace flashoverlap
