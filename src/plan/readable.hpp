#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// Numbers as messages and pictures show them.
namespace flashoverlap {

/// At most `most` bytes of a text: the middle of a longer one is replaced by "...".
std::string shortened(std::string text, std::size_t most);

/// "134.2 MB".
std::string readable_bytes(double bytes);

/// "1,2,4", and of a long list the beginning: "1,1,1,1, ... (20,000 in all)".
std::string readable_list(std::span<const int> values);

/// "26,624".
std::string grouped_digits(std::int64_t number);

}  // namespace flashoverlap
