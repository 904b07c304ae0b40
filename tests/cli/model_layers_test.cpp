#include "cli/model_layers.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap::cli {
namespace {

TEST(ModelLayersTest, EveryOverlapOfEveryModelRunsOnGpusAndCanBePlanned) {
  for (const std::string& model : model_names()) {
    for (const int ranks : {2, 4, 8}) {
      const auto problems = layer_problems(model_sizes(model), 1024, ranks);
      EXPECT_EQ(problems.size(), 14u);
      for (const Problem& problem : problems) {
        EXPECT_EQ(problem.n % 8 + problem.k % 8, 0) << model << " " << name(problem.operation);
        EXPECT_NO_THROW(make_plan(problem, {.strategy = Strategy::sequential}, 0));
      }
    }
  }
}

// Llama-3 8B on 2 ranks: 16 heads of queries and 4 of keys and values on each; half of twice 14336.
TEST(ModelLayersTest, RanksShareHeadsAndFeedForward) {
  const auto problems = layer_problems(model_sizes("llama3-8b"), 512, 2);
  EXPECT_EQ(problems[0].operation, Operation::all_gather_gemm);
  EXPECT_EQ(problems[0].n, 16 * 128 + 2 * 4 * 128);
  EXPECT_EQ(problems[0].k, 4096);
  EXPECT_EQ(problems[1].operation, Operation::gemm_reduce_scatter);
  EXPECT_EQ(problems[1].n, 4096);
  EXPECT_EQ(problems[1].k, 16 * 128);
  EXPECT_EQ(problems[7].n, 14336);
  EXPECT_EQ(problems[8].k, 14336 / 2);
}

TEST(ModelLayersTest, RefusesWhatRanksDoNotDivide) {
  EXPECT_THROW(layer_problems(model_sizes("llama3-8b"), 1000, 3), InvalidArgument);
  EXPECT_THROW(layer_problems(model_sizes("llama3-8b"), 1001, 2), InvalidArgument);
}

class ModelFileTest : public ::testing::Test {
 protected:
  ~ModelFileTest() override { std::filesystem::remove(path_); }

  ModelSizes sizes(const std::string& text) {
    std::ofstream(path_) << text;
    return model_sizes(path_);
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("flashoverlap-model-" + std::to_string(getpid()) + ".json"))
          .string();
};

TEST_F(ModelFileTest, HasTheSizesOfAnyModel) {
  const ModelSizes read =
      sizes(R"({"hidden": 2048, "ffn": 8192, "heads": 32, "kv_heads": 8, "head_dimension": 64})");
  EXPECT_EQ(read.ffn, 8192);
  EXPECT_EQ(read.head_dimension, 64);
  EXPECT_EQ(sizes(R"({"hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 8})").head_dimension, 128);
}

TEST_F(ModelFileTest, IsRefusedWithTheOptionAndTheKey) {
  for (const auto& [text, key] : {std::pair{R"({"hidden": 2048})", "ffn"},
                                  {R"({"hidden": 0, "ffn": 8, "heads": 1, "kv_heads": 1})", "hidden"},
                                  {R"({"hidden": 8, "ffn": 8, "heads": 1, "kv_heads": 1, "x": 1})", "x"}}) {
    try {
      sizes(text);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(model_sizes("no-such-model"), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap::cli
