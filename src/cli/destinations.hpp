/// Where the rows of an all-to-all go.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

/// `Problem::destinations` or `Problem::expert_rows`: a list for each rank.
using Destinations = std::vector<std::vector<std::int32_t>>;

/// JSON: for each rank the list of its rows' destinations.
Destinations read_destinations(std::string_view text);

/// JSON: for each rank the list of its rows for each expert.
Destinations read_expert_rows(std::string_view text);

/// Uniform; sorted where the operation wants it.
Destinations random_destinations(const Problem& problem, std::uint64_t seed);

/// In no order, some ranks getting far more rows than others, and some pairs of ranks without any.
Destinations uneven_destinations(const Problem& problem, std::uint64_t seed);

/// m rows of each rank (or its part of them, where they are gathered) for the problem's experts, as random
/// routing leaves them: some experts are given several times as many rows as others, each at least
/// `least_share` of the most that one expects. Negative: some get none.
Destinations uneven_expert_rows(const Problem& problem, std::uint64_t seed, double least_share);

}  // namespace flashoverlap::cli
