// Reads arbitrary text as plans and, if that succeeds, looks for violations. No text may cause an exception
// other than flashoverlap::Error, and plans without violations must be the same after writing and reading
// them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/validate.hpp"

namespace {

/// The position and length of every number in a text.
std::vector<std::pair<std::size_t, std::size_t>> numbers_in(std::string_view text) {
  constexpr std::string_view digits = "-0123456789";
  std::vector<std::pair<std::size_t, std::size_t>> numbers;
  for (std::size_t begin = text.find_first_of(digits); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(digits, begin), text.size());
    numbers.emplace_back(begin, end - begin);
    begin = text.find_first_of(digits, end);
  }
  return numbers;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Half of the mutations replace one number by another, which keeps the document well-formed, so that the
// validator is reached.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  std::minstd_rand random(seed);
  std::string text(reinterpret_cast<const char*>(data), size);
  const auto numbers = numbers_in(text);
  if (numbers.empty() || random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);

  constexpr std::array replacements{"0", "1",  "2",  "3",          "4",         "7",
                                    "8", "64", "-2", "1073741823", "2147483647"};
  const auto [begin, length] = numbers[random() % numbers.size()];
  const auto [other_begin, other_length] = numbers[random() % numbers.size()];
  const std::string replacement = random() % 2 == 0 ? text.substr(other_begin, other_length)
                                                    : replacements[random() % replacements.size()];
  text.replace(begin, length, replacement);
  const std::size_t new_size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), new_size);
  return new_size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flashoverlap;
  try {
    const auto plans = plans_from_json({reinterpret_cast<const char*>(data), size});
    if (find_violations(plans).empty() && plans_from_json(plans_to_json(plans)) != plans) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
