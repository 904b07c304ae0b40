#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace flashoverlap {

/// The value below which `share` of the values lie; there is at least one.
inline double quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

}  // namespace flashoverlap
