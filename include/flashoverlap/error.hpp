/// Errors thrown by the library. Every one derives from `flashoverlap::Error`; the library never calls
/// `exit` or `abort`, and destructors never throw.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace flashoverlap {

/// What all of them share: catch this to catch them all. `what()` is one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument, option, key or file that breaks a rule. `what()` is one line: "argument = value: rule"; the
/// middle of a long value is left out.
class InvalidArgument : public Error {
 public:
  template <typename Value>
  InvalidArgument(std::string_view argument, const Value& value, std::string_view rule)
      : InvalidArgument(line(argument, fmt::format("{}", value), rule), std::string(argument)) {}

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

  static std::string line(std::string_view argument, const std::string& value, std::string_view rule);

  std::string argument_;
};

/// A set of plans that `validate` refuses or that cannot run to its end; `what()` is the first violation.
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

/// An NCCL call that failed, a rank that was lost, or a communicator that was aborted; `what()` names this
/// rank, the call and the reason. The communicator cannot be used any more.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// A call of CUDA or cuBLASLt that failed, or one that the driver does not have; `what()` names the call and
/// the reason.
class CudaError : public Error {
 public:
  using Error::Error;
};

/// Throws `InvalidArgument` unless `holds`.
template <typename Value>
void require(bool holds, std::string_view argument, const Value& value, std::string_view rule) {
  if (!holds) throw InvalidArgument(argument, value, rule);
}

}  // namespace flashoverlap
