#include "cli/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "plan/json/json_reader.hpp"

namespace flashoverlap::cli {

std::int64_t to_integer(const std::string& option, const std::string& text, std::int64_t minimum,
                        std::int64_t maximum) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  require(whole && value >= minimum && value <= maximum, option, shown(text),
          fmt::format("must be an integer between {} and {}", minimum, maximum));
  return value;
}

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace flashoverlap::cli
