/// What rank 0 decides, as all ranks learn it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "flashoverlap/search.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// What `decide` returns on rank 0, where alone it is called, on every rank. Collective. What it throws there
/// the other ranks throw as an `Error`.
std::vector<Candidate> decided_by_first(const GpuRank& gpu,
                                        const std::function<std::vector<Candidate>()>& decide);

/// Rank 0's text, on every rank. Collective.
std::string shared_text(const GpuRank& gpu, const std::string& text);

}  // namespace flashoverlap
