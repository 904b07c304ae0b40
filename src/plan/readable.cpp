#include "plan/readable.hpp"

#include <fmt/ranges.h>

#include <array>

namespace flashoverlap {

std::string readable_bytes(double bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string readable_list(std::span<const int> values) {
  constexpr std::size_t most_shown = 24;
  if (values.size() <= most_shown) return fmt::format("{}", fmt::join(values, ","));
  return fmt::format("{}, ... ({} in all)", fmt::join(values.first(most_shown), ","),
                     grouped_digits(std::ssize(values)));
}

std::string grouped_digits(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

}  // namespace flashoverlap
