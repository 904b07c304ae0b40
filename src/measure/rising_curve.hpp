#pragma once

#include <algorithm>

#include "flashoverlap/machine.hpp"

namespace flashoverlap {

/// Appends a measured point. A larger size takes longer, also where noise says otherwise.
inline void add_rising_point(Curve& curve, double size, double microseconds) {
  constexpr double more = 1.0001;
  if (!curve.points.empty()) microseconds = std::max(microseconds, curve.points.back().microseconds * more);
  curve.points.push_back({size, microseconds});
}

}  // namespace flashoverlap
