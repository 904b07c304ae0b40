/// Where the rows of an all-to-all go.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

/// `Problem::destinations`.
using Destinations = std::vector<std::vector<std::int32_t>>;

/// JSON: for each rank the list of its rows' destinations.
Destinations read_destinations(std::string_view text);

/// Uniform; sorted where the operation wants it.
Destinations random_destinations(const Problem& problem, std::uint64_t seed);

/// In no order, some ranks getting far more rows than others, and some pairs of ranks without any.
Destinations uneven_destinations(const Problem& problem, std::uint64_t seed);

}  // namespace flashoverlap::cli
