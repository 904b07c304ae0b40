#include "cli/overlap_search.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "cli/background_gemm.hpp"
#include "cli/gpu_baseline.hpp"
#include "cli/gpu_schedule.hpp"
#include "exec/plan_needs.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "gemm/kernel_choice.hpp"
#include "gemm/random_fill.hpp"
#include "plan/grouping.hpp"
#include "plan/operations.hpp"

namespace flashoverlap::cli {
namespace {

struct PredictedSchedule {
  Schedule schedule;
  double latency_us = 0;
};

constexpr double signal_us = 5;  // from the last raise to the collective's first instruction

/// One collective of `count` elements of the whole matrix.
void communicate(const Communicator& communicator, Operation operation, void* data, void* result,
                 std::int64_t count, cudaStream_t stream) {
  const std::int64_t part = count / communicator.ranks();
  if (operation == Operation::gemm_all_reduce) {
    communicator.all_reduce(data, count, DataType::bf16, stream);
  } else if (operation == Operation::gemm_reduce_scatter) {
    communicator.reduce_scatter(data, result, part, DataType::bf16, stream);
  } else {
    std::vector<Communicator::Part> sends;
    std::vector<Communicator::Part> receives;
    for (int peer = 0; peer < communicator.ranks(); ++peer) {
      sends.push_back({peer, static_cast<Element*>(data) + peer * part, part});
      receives.push_back({peer, static_cast<Element*>(result) + peer * part, part});
    }
    communicator.exchange(sends, receives, DataType::bf16, stream);
  }
}

/// For the predictor. The last group's communication has the GPU to itself.
GroupingCosts measured_costs(const Problem& problem, const Schedule& schedule, double wave_us,
                             const CollectiveCosts& collective) {
  const std::int64_t entries = signalled_entries(problem, schedule);
  const double entry_bytes = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                             size_of(problem.data_type) / static_cast<double>(entries);
  GroupingCosts costs{.waves = grouped_waves(problem, schedule), .wave_us = wave_us};
  costs.communication_us = [=, waves = costs.waves, &collective](int first, int count) {
    const std::int64_t begin = std::min(entries, entries_in(schedule, first));
    const std::int64_t end = std::min(entries, entries_in(schedule, first + count));
    const Curve& curve = first + count == waves ? collective.alone : collective.beside_gemm;
    return signal_us + curve.microseconds(static_cast<double>(end - begin) * entry_bytes);
  };
  return costs;
}

/// The best grouping by the predictor, and the best into two groups.
void add_best_groupings(std::vector<PredictedSchedule>& candidates, const Problem& problem, Schedule schedule,
                        double wave_us, CollectiveCurves& curves) {
  const CollectiveCosts& collective = curves(schedule.comm_multiprocessors);
  PredictedSchedule best{.latency_us = std::numeric_limits<double>::infinity()};
  PredictedSchedule best_pair = best;
  const auto keep = [&](PredictedSchedule& kept, std::vector<int> groups, double latency_us) {
    if (latency_us >= kept.latency_us) return;
    kept = {schedule, latency_us};
    kept.schedule.groups = std::move(groups);
  };
  for (const int first : first_groups(problem, schedule)) {
    schedule.groups = {first};
    const GroupingCosts costs = measured_costs(problem, schedule, wave_us, collective);
    PredictedGrouping grouping = best_grouping(costs, first);
    keep(best, std::move(grouping.groups), grouping.latency_us);
    if (costs.waves == first) continue;
    const std::vector<int> pair{first, costs.waves - first};
    keep(best_pair, pair, predict_latency(costs, pair));
  }
  candidates.push_back(best);
  if (best.schedule.groups.size() != 2 && !best_pair.schedule.groups.empty()) candidates.push_back(best_pair);
}

}  // namespace

const CollectiveCosts& CollectiveCurves::operator()(int thread_blocks) {
  const auto [place, is_new] = costs_.try_emplace(thread_blocks);
  if (is_new) place->second = measure(thread_blocks);
  return place->second;
}

CollectiveCosts CollectiveCurves::measure(int thread_blocks) {
  constexpr std::int64_t largest = 64 << 20;
  const Communicator communicator = gpu_.communicator().capped(thread_blocks);
  // Shared as what an operator owns; sends and receives are as fast from any memory.
  const CollectiveMemory source = communicator.allocate(largest);
  const CollectiveMemory destination = communicator.allocate(largest);
  fill_random(source.data.get(), largest / sizeof(Element), DataType::bf16,
              static_cast<std::uint64_t>(gpu_.rank()), gpu_.stream());
  std::optional<BackgroundGemm> gemm;
  if (thread_blocks > 0) gemm.emplace(gpu_.multiprocessors() - thread_blocks);
  gpu_.barrier();
  const auto least_us = [&](std::int64_t bytes, const std::function<void()>& prepare) {
    constexpr int repetitions = 3;
    std::vector<double> times;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      prepare();
      times.push_back(gpu_.elapsed_us([&] {
        communicate(communicator, operation_, source.data.get(), destination.data.get(),
                    bytes / static_cast<std::int64_t>(sizeof(Element)), gpu_.stream());
      }));
    }
    return std::ranges::min(gpu_.maxima(times));
  };
  CollectiveCosts costs;
  // More bytes take no less time.
  const auto add = [](Curve& curve, std::int64_t bytes, double us) {
    if (!curve.points.empty()) us = std::max(us, curve.points.back().microseconds);
    curve.points.push_back({static_cast<double>(bytes), us});
  };
  least_us(largest, [] {});  // connects
  for (std::int64_t bytes = 1 << 20; bytes <= largest; bytes *= 4) {
    const double alone_us = least_us(bytes, [] {});
    add(costs.alone, bytes, alone_us);
    if (gemm) {
      constexpr double meeting_us = 500;  // until all ranks have begun
      constexpr double worst_slowdown = 5;
      const auto keep_busy = [&] { gemm->keep_busy(meeting_us + worst_slowdown * alone_us); };
      add(costs.beside_gemm, bytes, std::max(alone_us, least_us(bytes, keep_busy)));
      gemm->wait();
    }
  }
  gpu_.barrier();
  if (thread_blocks > 0 && !is_fast_enough(source.is_shared, thread_blocks)) costs.alone = (*this)(0).alone;
  return costs;
}

std::vector<Schedule> candidate_schedules(const Problem& problem, const Method& method, double gemm_us,
                                          int multiprocessors, const std::vector<int>& comm_multiprocessors,
                                          CollectiveCurves& curves) {
  const auto expected_us = [&](const KernelTile& tile, const Shape& shape) {
    return expected_microseconds(tile, shape, problem.k, multiprocessors);
  };
  const Shape c{problem.m, problem.n};
  const double scale = gemm_us / expected_us(choose_kernel_tile(c, problem.k, multiprocessors), c);
  std::vector<PredictedSchedule> candidates;
  for (const int count : comm_multiprocessors) {
    constexpr double near = 1.06;
    std::vector<PredictedSchedule> of_count;
    for (const Schedule& schedule :
         gpu_schedules(problem, method.strategy, method.layout, multiprocessors - count, count, near)) {
      const Shape entry{entry_rows(schedule), schedule.tile_cols};
      const double wave_us = scale * expected_us(kernel_tile(schedule), entry);
      add_best_groupings(of_count, problem, schedule, wave_us, curves);
    }
    std::ranges::sort(of_count, {}, &PredictedSchedule::latency_us);
    constexpr std::size_t kept = 3;
    of_count.resize(std::min(kept, of_count.size()));
    std::ranges::move(of_count, std::back_inserter(candidates));
  }
  std::ranges::sort(candidates, {}, &PredictedSchedule::latency_us);
  std::vector<Schedule> schedules;
  for (PredictedSchedule& candidate : candidates) schedules.push_back(std::move(candidate.schedule));
  return schedules;
}

}  // namespace flashoverlap::cli
