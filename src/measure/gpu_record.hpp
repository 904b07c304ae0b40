/// What measured figures were measured on.
#pragma once

#include <nlohmann/json.hpp>

namespace flashoverlap {

/// The first GPU, the versions of what runs on it, this program's commit, and the GPU's state before the
/// measurement. Throws `Error` where no GPU can be used.
nlohmann::ordered_json gpu_machine();

/// Adds the GPU's state after the measurement.
void note_state_after(nlohmann::ordered_json& machine);

}  // namespace flashoverlap
