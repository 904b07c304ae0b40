/// The three GEMMs of a linear layer Y = X · Wᵀ.
#pragma once

#include "plan/enumerators.hpp"

namespace flashoverlap::cli {

enum class LayerPass {
  forward,          ///< Y = X · Wᵀ
  input_gradient,   ///< dX = dY · W
  weight_gradient,  ///< dW = dYᵀ · X
};

inline std::string_view name(LayerPass pass) {
  switch (pass) {
    case LayerPass::forward: return "forward";
    case LayerPass::input_gradient: return "input_gradient";
    case LayerPass::weight_gradient: return "weight_gradient";
  }
  return "?";
}

/// How the operands of the pass lie in memory.
inline void set_layouts(Problem& problem, LayerPass pass) {
  using enum OperandLayout;
  problem.a_layout = pass == LayerPass::weight_gradient ? row_contiguous : k_contiguous;
  problem.b_layout = pass == LayerPass::forward ? k_contiguous : row_contiguous;
}

}  // namespace flashoverlap::cli

namespace flashoverlap {

template <>
inline constexpr std::array enumerators<cli::LayerPass>{
    cli::LayerPass::forward, cli::LayerPass::input_gradient, cli::LayerPass::weight_gradient};

}  // namespace flashoverlap
