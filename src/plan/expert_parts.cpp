#include "plan/expert_parts.hpp"

#include <algorithm>

namespace flashoverlap {
namespace {

/// Appends the rows that `source` has for each expert of `target`, or for all experts if that is 0.
void append(const Problem& problem, std::int32_t source, std::int32_t target,
            std::vector<ExpertParts::Part>& parts) {
  std::int32_t first = parts.empty() ? 0 : parts.back().rows.first + parts.back().rows.count;
  for (std::int32_t expert = 0; expert < problem.experts; ++expert) {
    const std::int32_t rows = at(at(problem.expert_rows, source), target * problem.experts + expert);
    if (rows > 0) parts.push_back({{first, rows}, expert});
    first += rows;
  }
}

}  // namespace

ExpertParts::ExpertParts(const Problem& problem) : parts_(static_cast<std::size_t>(problem.ranks)) {
  for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
    std::vector<Part>& parts = at(parts_, rank);
    if (problem.experts == 1) {
      parts.push_back({{0, static_cast<std::int32_t>(gemm_shape(problem, rank).rows)}, 0});
      continue;
    }
    const bool gathered = problem.operation == Operation::all_gather_gemm;
    for (std::int32_t peer = 0; peer < problem.ranks; ++peer) {
      const bool received = communicates_first(problem.operation);
      append(problem, received ? peer : rank, gathered ? 0 : received ? rank : peer, parts);
    }
  }
}

std::size_t ExpertParts::index_of(std::int32_t rank, std::int32_t row) const {
  const std::vector<Part>& parts = at(parts_, rank);
  const auto after =
      std::ranges::upper_bound(parts, row, {}, [](const Part& part) { return part.rows.first; });
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - parts.begin() - 1, 0));
}

std::vector<ExpertParts::Part> ExpertParts::within(std::int32_t rank, Range rows) const {
  const std::vector<Part>& parts = at(parts_, rank);
  const std::int32_t end = rows.first + rows.count;
  std::vector<Part> found;
  for (std::size_t index = index_of(rank, rows.first); index < parts.size(); ++index) {
    const auto [whole, expert] = parts[index];
    const std::int32_t first = std::max(rows.first, whole.first);
    const std::int32_t count = std::min(end, whole.first + whole.count) - first;
    if (count <= 0) break;
    found.push_back({{first, count}, expert});
  }
  return found;
}

std::int64_t ExpertParts::row_blocks(std::int32_t rank, Range rows, std::int64_t block) const {
  std::int64_t blocks = 0;
  for (const Part& part : within(rank, rows)) blocks += divide_up(part.rows.count, block);
  return blocks;
}

void ExpertParts::align(std::int32_t rank, std::int32_t first, std::int32_t block,
                        std::vector<Range>& ranges) const {
  const std::vector<Part>& parts = at(parts_, rank);
  if (parts.size() <= 1) return;
  for (std::size_t next = 1; next < ranges.size(); ++next) {
    Range& before = ranges[next - 1];
    Range& after = ranges[next];
    const std::int32_t end = first + after.first;
    const std::int32_t moved = (end - parts[index_of(rank, end)].rows.first) % block;
    before.count -= moved;
    after.first -= moved;
    after.count += moved;
  }
}

}  // namespace flashoverlap
