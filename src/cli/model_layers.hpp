/// The overlaps of one transformer layer, from the sizes of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

struct ModelSizes {
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dimension = 128;
};

/// A model by name, or a JSON file with the keys "hidden", "ffn", "heads", "kv_heads" and, if it is not 128,
/// "head_dimension". Throws `InvalidArgument` that names --model.
ModelSizes model_sizes(const std::string& name_or_file);

/// The models' names, for help and errors.
std::vector<std::string> model_names();

/// What tensor parallelism over `ranks` overlaps in a layer for `tokens` tokens: attention and feed-forward,
/// with and without sequence parallelism, forward and the gradients of their inputs; and the gradients of the
/// weights, for which the input is gathered once more. Throws `InvalidArgument` for sizes that the ranks do
/// not divide.
std::vector<Problem> layer_problems(const ModelSizes& model, std::int64_t tokens, int ranks);

}  // namespace flashoverlap::cli
