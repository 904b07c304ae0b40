/// Errors thrown by the library. Every one derives from `flashoverlap::Error`; the library never calls
/// `exit` or `abort`, and destructors never throw.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace flashoverlap {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument, option, key or file that breaks a rule. `what()` is one line: "argument = value: rule".
class InvalidArgument : public Error {
 public:
  template <typename Value>
  InvalidArgument(std::string_view argument, const Value& value, std::string_view rule)
      : Error(fmt::format("{} = {}: {}", argument, value, rule)), argument_(argument) {}

  /// The argument's name, as the caller wrote it (a JSON path such as `plans[1].tiles[3].row`, an option, a
  /// field).
  const std::string& argument() const noexcept { return argument_; }

  /// The same refusal under the name by which the caller's caller knows the argument ("m": "problem.m",
  /// "--m").
  InvalidArgument renamed(std::string argument) const {
    return InvalidArgument(argument + (what() + argument_.size()), std::move(argument));
  }

 private:
  InvalidArgument(const std::string& line, std::string&& argument)
      : Error(line), argument_(std::move(argument)) {}

  std::string argument_;
};

/// A set of plans that `validate` refuses.
class InvalidPlan : public Error {
 public:
  using Error::Error;
};

/// A bounded wait that expired; `what()` names the rank and, of a message's wait, the counter, its group, the
/// expected and the actual value.
class WaitExpired : public Error {
 public:
  using Error::Error;
};

/// Throws `InvalidArgument` unless `holds`.
template <typename Value>
void require(bool holds, std::string_view argument, const Value& value, std::string_view rule) {
  if (!holds) throw InvalidArgument(argument, value, rule);
}

}  // namespace flashoverlap
