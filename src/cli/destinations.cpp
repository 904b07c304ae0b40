#include "cli/destinations.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap::cli {
namespace {

constexpr std::int64_t most_entries = 1 << 28;  ///< 1 GB; every rank's plan has all ranks' destinations

}

Destinations read_destinations(std::string_view text) {
  const nlohmann::json json = parse_json(text, "destinations");
  const auto read_rank = [](const JsonValue& rank) {
    return rank.array([](const JsonValue& row) { return row.integer<std::int32_t>(0, max_ranks - 1); });
  };
  return JsonValue(json, "destinations").array(read_rank, max_ranks);
}

Destinations read_expert_rows(std::string_view text) {
  const nlohmann::json json = parse_json(text, "expert_rows");
  const auto read_rank = [](const JsonValue& rank) {
    return rank.array([](const JsonValue& rows) { return rows.integer<std::int32_t>(); });
  };
  return JsonValue(json, "expert_rows").array(read_rank, max_ranks);
}

Destinations random_destinations(const Problem& problem, std::uint64_t seed) {
  const std::int64_t most_rows = most_entries / problem.ranks / problem.ranks;
  require(problem.m <= most_rows, "--random-destinations", seed,
          fmt::format("is limited to m = {} on {} ranks", most_rows, problem.ranks));
  std::mt19937_64 random(seed);
  Destinations destinations(static_cast<std::size_t>(problem.ranks));
  for (auto& rows : destinations) {
    rows.resize(static_cast<std::size_t>(problem.m));
    for (auto& row : rows)
      row = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(problem.ranks));
    if (problem.operation == Operation::all_to_all_gemm) std::ranges::sort(rows);
  }
  return destinations;
}

Destinations uneven_destinations(const Problem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  Destinations destinations(ranks);
  for (std::size_t source = 0; source < ranks; ++source) {
    std::vector<double> weights(ranks);
    for (double& weight : weights) weight = std::pow(std::uniform_real_distribution(0.1, 1.0)(random), 3);
    if (ranks > 1 && source % 2 == 0) weights[(source + seed) % ranks] = 0;
    std::discrete_distribution<std::int32_t> draw(weights.begin(), weights.end());
    destinations[source].resize(static_cast<std::size_t>(problem.m));
    for (std::int32_t& row : destinations[source]) row = draw(random);
  }
  return destinations;
}

Destinations uneven_expert_rows(const Problem& problem, std::uint64_t seed, double least_share) {
  std::mt19937_64 random(seed);
  const bool routed = is_all_to_all(problem.operation);
  const auto experts = static_cast<std::size_t>(problem.experts * (routed ? problem.ranks : 1));
  const std::int64_t rows = routed ? problem.m : problem.m / problem.ranks;
  const std::int64_t most_rows = most_entries / problem.ranks;
  require(rows <= most_rows, "--experts", problem.experts,
          fmt::format("is limited to {} rows on each of {} ranks, as the experts are drawn row by row",
                      most_rows, problem.ranks));
  std::vector<double> shares(experts);
  for (double& share : shares)
    share = std::max(0.0, std::uniform_real_distribution(least_share, 1.0)(random));
  shares[random() % experts] = 1;  // not all are 0
  std::discrete_distribution<std::size_t> draw(shares.begin(), shares.end());
  Destinations expert_rows(static_cast<std::size_t>(problem.ranks), std::vector<std::int32_t>(experts, 0));
  for (std::vector<std::int32_t>& counts : expert_rows) {
    for (std::int64_t row = 0; row < rows; ++row) ++counts[draw(random)];
  }
  return expert_rows;
}

}  // namespace flashoverlap::cli
