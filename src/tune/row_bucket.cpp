#include "flashoverlap/error.hpp"
#include "flashoverlap/tuner.hpp"

namespace flashoverlap {

std::int64_t row_bucket(std::int64_t m) {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  require(m >= 1 && m <= most, "m", m, fmt::format("must be between 1 and {}", most));
  std::int64_t power = 1;
  while (power <= m / 2) power *= 2;
  if (m == power) return power;
  return m <= power + power / 2 ? power + power / 2 : 2 * power;
}

}  // namespace flashoverlap
