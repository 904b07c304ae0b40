#include "flashoverlap/error.hpp"
#include "flashoverlap/tuner.hpp"

namespace flashoverlap {

std::int64_t row_bucket(std::int64_t m) {
  require(m >= 1, "m", m, "must be at least 1");
  std::int64_t power = 1;
  while (2 * power <= m) power *= 2;
  if (m == power) return power;
  return m <= power + power / 2 ? power + power / 2 : 2 * power;
}

}  // namespace flashoverlap
