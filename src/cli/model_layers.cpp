#include "cli/model_layers.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/files.hpp"
#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap::cli {
namespace {

constexpr std::array<std::pair<std::string_view, ModelSizes>, 3> known_models{{
    {"llama3-8b", {4096, 14336, 32, 8}},
    {"llama3-70b", {8192, 28672, 64, 8}},
    {"llama3-405b", {16384, 53248, 128, 8}},
}};

ModelSizes from_json(const std::string& text) {
  const nlohmann::json json = parse_json(text, "model");
  JsonObject object(JsonValue(json, "model"));
  const auto size = [](const JsonValue& value, std::int64_t most) {
    return value.integer(std::int64_t{1}, most);
  };
  constexpr std::int64_t most_features = 1 << 24;
  constexpr std::int64_t most_of_heads = 1 << 12;
  ModelSizes sizes{.hidden = size(object["hidden"], most_features),
                   .ffn = size(object["ffn"], most_features),
                   .heads = size(object["heads"], most_of_heads),
                   .kv_heads = size(object["kv_heads"], most_of_heads)};
  if (const auto given = object.find("head_dimension")) sizes.head_dimension = size(*given, most_of_heads);
  object.finish();
  return sizes;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, sizes] : known_models) names.emplace_back(name);
  return names;
}

ModelSizes model_sizes(const std::string& name_or_file) {
  for (const auto& [name, sizes] : known_models) {
    if (name == name_or_file) return sizes;
  }
  return from_file("--model", name_or_file, from_json);
}

std::vector<Problem> layer_problems(const ModelSizes& model, std::int64_t tokens, int ranks) {
  using enum Operation;
  using enum OperandLayout;
  const auto share = [&](std::string_view name, std::int64_t extent) {
    require(extent % (std::int64_t{8} * ranks) == 0, "--gpus", ranks,
            fmt::format("must leave each rank a multiple of 8 of the model's {} {}", extent, name));
    return extent / ranks;
  };
  require(tokens % (std::int64_t{8} * ranks) == 0, "--m", tokens,
          fmt::format("must be a multiple of 8 on each of {} ranks", ranks));
  const std::int64_t queries = share("columns of queries", model.heads * model.head_dimension);
  const std::int64_t keys = share("columns of keys", model.kv_heads * model.head_dimension);
  const std::int64_t ffn = share("columns of the feed-forward layer", model.ffn);
  share("columns of the residual", model.hidden);
  std::vector<Problem> problems;
  for (const auto& [first_cols, second_depth] : {std::pair{queries + 2 * keys, queries}, {2 * ffn, ffn}}) {
    const auto add = [&](Problem problem) {
      problem.ranks = ranks;
      problems.push_back(std::move(problem));
    };
    add({.operation = all_gather_gemm, .m = tokens, .n = first_cols, .k = model.hidden});
    for (const Operation sum : {gemm_reduce_scatter, gemm_all_reduce}) {
      add({.operation = sum, .m = tokens, .n = model.hidden, .k = second_depth});
      add({.operation = sum, .m = tokens, .n = model.hidden, .k = first_cols, .b_layout = row_contiguous});
    }
    add({.operation = all_gather_gemm,
         .m = tokens,
         .n = second_depth,
         .k = model.hidden,
         .b_layout = row_contiguous});
    if (tokens % (std::int64_t{64} * ranks) == 0) {  // parts of k are whole steps
      add({.operation = all_gather_gemm,
           .m = first_cols,
           .n = model.hidden,
           .k = tokens,
           .gathered = Operand::b,
           .a_layout = row_contiguous,
           .b_layout = row_contiguous});
    }
  }
  return problems;
}

}  // namespace flashoverlap::cli
