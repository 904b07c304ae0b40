/// What rank 0 decides, as all ranks learn it.
#pragma once

#include <string>
#include <vector>

#include "flashoverlap/search.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Rank 0's candidates, on every rank. Collective. Throws `Error` on all ranks if there are too many.
std::vector<Candidate> shared_candidates(const GpuRank& gpu, const std::vector<Candidate>& candidates);

/// Rank 0's text, on every rank. Collective.
std::string shared_text(const GpuRank& gpu, const std::string& text);

}  // namespace flashoverlap
