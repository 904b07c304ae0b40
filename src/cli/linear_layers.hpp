/// The GEMMs that one rank computes of the linear layers of Llama-3 8B, 70B and 405B.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/layer_pass.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

/// Of one of `ranks` ranks that share each layer, for `tokens` tokens.
std::vector<Problem> linear_layers(LayerPass pass, int ranks, std::int64_t tokens);

}  // namespace flashoverlap::cli
