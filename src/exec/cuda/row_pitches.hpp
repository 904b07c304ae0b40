#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "flashoverlap/operator.hpp"
#include "flashoverlap/plan.hpp"

/// How far rows of an operator's matrices lie apart.
namespace flashoverlap {

/// Elements from row to row of a rank's buffers, by role.
using RowPitches = std::array<std::int64_t, buffer_count>;

/// Of what an operator owns, on every rank. By strategy `store`, rows of staging and inbox begin at multiples
/// of 128 bytes if that takes little room: what is not aligned crosses more lines of L2, and so of NVLink.
/// Otherwise rows lie next to each other.
std::int64_t workspace_pitch(const Plan& plan, BufferRole role);

/// Why a, b or out can have no padding between rows, on any rank; empty where it can.
std::string padding_obstacle(std::span<const Plan> plans, BufferRole role, bool own_result);

/// Throws `InvalidArgument` for pitches that the rank's matrices cannot have.
RowPitches row_pitches(std::span<const Plan> plans, int rank, const Pitches& pitches, bool own_result);

/// Bytes from row to row of a buffer of any rank. `own`: of the plan's; peers address no memory of callers.
std::int64_t row_bytes_apart(const Plan& plan, const RowPitches& own, BufferRole role, int rank);

}  // namespace flashoverlap
