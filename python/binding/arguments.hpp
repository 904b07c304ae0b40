/// Arguments that are converted one by one, so that what is wrong is refused in one line that names it.
/// nanobind's own refusal lists the signature and the types of all arguments.
#pragma once

#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "names.hpp"

namespace flashoverlap::python {

/// What values of a type are called in messages.
template <typename T>
inline constexpr auto kind = nullptr;
template <>
inline constexpr std::string_view kind<bool> = "True or False";
template <>
inline constexpr std::string_view kind<int> = "a whole number of at most 32 bits";
template <>
inline constexpr std::string_view kind<std::int64_t> = "a whole number of at most 64 bits";
template <>
inline constexpr std::string_view kind<std::vector<int>> = "a list of whole numbers";
template <>
inline constexpr std::string_view kind<std::vector<std::vector<int>>> =
    "a list of whole numbers for each rank";

/// Throws Python's TypeError for another type, and ValueError for an unknown name.
template <typename T>
T argument(nanobind::handle source, std::string_view name) {
  if constexpr (std::is_enum_v<T>) {
    return enumerator<T>(source, name);
  } else {
    T value{};
    if (!nanobind::try_cast(source, value))
      throw nanobind::type_error(refusal(name, source, fmt::format("must be {}", kind<T>)).c_str());
    return value;
  }
}

/// The arguments of a function that takes all but the first one by name.
class CallArguments {
 public:
  /// `usage`: a call that is right, for messages.
  CallArguments(const nanobind::args& by_place, const nanobind::kwargs& by_name, std::string_view usage)
      : by_place_(by_place), by_name_(by_name), usage_(usage) {
    require(by_place.size() <= 1,
            fmt::format("{} arguments are given without their names: must be at most 1", by_place.size()));
  }

  /// The first one.
  template <typename T>
  void require_first(const char* name, T& value) {
    if (by_place_.size() == 0) return require_named(name, value);
    known_.emplace_back(name);
    value = argument<T>(nanobind::object(by_place_[0]), name);
    require(!by_name_.contains(name), fmt::format("{}: must be given once", name));
  }

  template <typename T>
  void require_named(const char* name, T& value) {
    require(by_name_.contains(name), fmt::format("{}: must be given", name));
    take(name, value);
  }

  /// Leaves the value as it is where it is not given.
  template <typename T>
  void take(const char* name, T& value) {
    known_.emplace_back(name);
    if (by_name_.contains(name)) value = argument<T>(nanobind::object(by_name_[name]), name);
  }

  /// Throws unless all that are given have been taken.
  void require_no_others() const {
    for (const auto& [given, value] : by_name_) {
      const auto name = text_of(given).value_or("");
      require(std::ranges::find(known_, name) != known_.end(),
              fmt::format("{}: must be one of {}", name, fmt::join(known_, ", ")));
    }
  }

 private:
  void require(bool holds, const std::string& rule) const {
    if (!holds) throw nanobind::type_error(fmt::format("{}, as in {}", rule, usage_).c_str());
  }

  const nanobind::args& by_place_;
  const nanobind::kwargs& by_name_;
  std::string_view usage_;
  std::vector<std::string_view> known_;
};

}  // namespace flashoverlap::python
