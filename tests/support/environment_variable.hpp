// An environment variable for the length of a test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "comm/process_environment.hpp"

namespace flashoverlap::testing {

/// Set for as long as it lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value)
      : name_(name), before_(environment_variable(name)) {
    setenv(name, value, 1);
  }
  ~EnvironmentVariable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace flashoverlap::testing
