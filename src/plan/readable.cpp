#include "plan/readable.hpp"

#include <fmt/ranges.h>

#include <array>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

std::string InvalidArgument::line(std::string_view argument, const std::string& value,
                                  std::string_view rule) {
  constexpr std::size_t longest_value = 120;
  return fmt::format("{} = {}: {}", argument, shortened(value, longest_value), rule);
}

std::string shortened(std::string text, std::size_t most) {
  constexpr std::string_view gap = "...";
  if (text.size() <= most) return text;
  // No character of UTF-8 is cut in two: its bytes after the first begin with the bits 10.
  const auto continues = [&](std::size_t place) { return (text[place] & 0xc0) == 0x80; };
  std::size_t begin = (most - gap.size()) / 2;
  std::size_t end = text.size() - (most - gap.size() - begin);
  while (begin > 0 && continues(begin)) --begin;
  while (end < text.size() && continues(end)) ++end;
  return text.replace(begin, end - begin, gap);
}

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
