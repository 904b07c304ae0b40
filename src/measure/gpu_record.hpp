/// The GPU and the software that figures were measured with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace flashoverlap {

/// The first GPU and its state before the measurement, the versions of CUDA's libraries, and this program's
/// commit. Throws `Error` where no GPU can be used.
nlohmann::ordered_json gpu_machine();

/// This process's command line, spaces between the arguments.
std::string command_line();

/// Adds the GPU's state after the measurement.
void note_state_after(nlohmann::ordered_json& machine);

}  // namespace flashoverlap
