#include "tune/shared_schedules.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

/// Calls visit(field) for each number of a schedule but its groups.
void visit_numbers(auto& schedule, auto visit) {
  visit(schedule.strategy);
  visit(schedule.layout);
  visit(schedule.tile_rows);
  visit(schedule.tile_cols);
  visit(schedule.cluster_rows);
  visit(schedule.step_depth);
  visit(schedule.multiprocessors);
  visit(schedule.first_multiprocessors);
  visit(schedule.comm_multiprocessors);
  visit(schedule.raster);
  visit(schedule.waves_per_group);
  visit(schedule.rounds);
}

/// As numbers that fp32 holds.
std::vector<double> numbers_of(const std::vector<Candidate>& candidates) {
  std::vector<double> numbers{static_cast<double>(candidates.size())};
  for (const Candidate& candidate : candidates) {
    visit_numbers(candidate.schedule,
                  [&](const auto& field) { numbers.push_back(static_cast<double>(field)); });
    numbers.push_back(candidate.predicted_us);
    numbers.push_back(static_cast<double>(candidate.schedule.groups.size()));
    numbers.insert(numbers.end(), candidate.schedule.groups.begin(), candidate.schedule.groups.end());
  }
  return numbers;
}

std::vector<Candidate> candidates_of(const std::vector<double>& numbers) {
  auto next = numbers.begin();
  std::vector<Candidate> candidates(static_cast<std::size_t>(*next++));
  for (Candidate& candidate : candidates) {
    visit_numbers(candidate.schedule, [&](auto& field) {
      field = static_cast<std::remove_reference_t<decltype(field)>>(static_cast<int>(*next++));
    });
    candidate.predicted_us = *next++;
    candidate.schedule.groups.resize(static_cast<std::size_t>(*next++));
    for (int& size : candidate.schedule.groups) size = static_cast<int>(*next++);
  }
  return candidates;
}

}  // namespace

std::vector<Candidate> shared_candidates(const GpuRank& gpu, const std::vector<Candidate>& candidates) {
  std::vector<double> numbers = gpu.is_first() ? numbers_of(candidates) : std::vector<double>{};
  const double count = gpu.maximum(static_cast<double>(numbers.size()));
  if (count > static_cast<double>(GpuRank::most_gathered))
    throw Error(fmt::format("{} numbers of schedules are too many to share", count));
  numbers.resize(static_cast<std::size_t>(count));
  return candidates_of(gpu.gather(numbers).front());
}

}  // namespace flashoverlap
