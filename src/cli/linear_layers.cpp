#include "cli/linear_layers.hpp"

#include <utility>

namespace flashoverlap::cli {

std::vector<Problem> linear_layers(LayerPass pass, int ranks, std::int64_t tokens) {
  struct Weights {
    std::int64_t n;
    std::int64_t k;
  };
  std::vector<Problem> layers;
  const std::int64_t w = ranks;
  for (const auto& [n, k] : {Weights{4096, 14336 / w},
                             {8192, 28672 / w},
                             {8192, 8192 / w},
                             {16384, 53248 / w},
                             {14336 / w, 4096},
                             {28672 / w, 8192},
                             {53248 / w, 16384}}) {
    Problem& problem = layers.emplace_back(Problem{.m = tokens, .n = n, .k = k});
    if (pass == LayerPass::input_gradient) std::swap(problem.n, problem.k);
    if (pass == LayerPass::weight_gradient) problem = {.m = n, .n = k, .k = tokens};
    set_layouts(problem, pass);
  }
  return layers;
}

}  // namespace flashoverlap::cli
