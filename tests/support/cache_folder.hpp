// A cache directory of a test, and what is stored there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "flashoverlap/plan_cache.hpp"
#include "support/random_problems.hpp"
#include "tune/entry_names.hpp"

namespace flashoverlap::testing {

namespace fs = std::filesystem;

inline TuningSite site_of(int ranks) {
  return {.gpu = "NVIDIA H200",
          .compute_capability = 90,
          .multiprocessors = 132,
          .driver = "580.95.05",
          .nccl = "2.28.3",
          .library = "1.2.3",
          .ranks = ranks,
          .fabric = "nvlink"};
}

/// A GEMM of a few tiles on two ranks. Different for every `number`.
inline TunedPlan small_plan(int number, double tuned_us = 10) {
  return {
      .problem = {.operation = Operation::gemm_all_reduce, .m = 64 + number, .n = 64, .k = 32, .ranks = 2},
      .schedule = {.tile_rows = 16, .tile_cols = 16, .multiprocessors = 4},
      .tuned_us = tuned_us,
      .sequential_us = 12.5,
      .predicted_us = 9.75,
      .date = "2025-11-23 08:15 UTC"};
}

/// Removed afterwards.
class CacheFolder : public ::testing::Test {
 protected:
  CacheFolder() {
    std::string pattern = (fs::temp_directory_path() / "flashoverlap-cache-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~CacheFolder() override {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  /// Its warnings are collected.
  PlanCache cache(int ranks = 2) {
    return {directory_.string(), site_of(ranks),
            [this](const std::string& line) { warnings_.push_back(line); }};
  }

  fs::path folder(int ranks = 2) const { return directory_ / folder_name(site_of(ranks)); }
  fs::path file(const TunedPlan& plan) const { return folder(plan.problem.ranks) / entry_name(plan); }

  static std::string text_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  static std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path directory_;
  std::vector<std::string> warnings_;
};

}  // namespace flashoverlap::testing
