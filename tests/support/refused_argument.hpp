// What a call that must be refused is refused for.
#pragma once

#include <string>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

/// The argument that the call's `InvalidArgument` names; "accepted" if it throws none.
std::string refused_argument(const auto& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.argument();
  }
  return "accepted";
}

}  // namespace flashoverlap
