#include "cli/overlap_search.hpp"

#include <algorithm>
#include <functional>

#include "cli/background_gemm.hpp"
#include "cli/gpu_baseline.hpp"
#include "cli/gpu_schedule.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/random_fill.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap::cli {
namespace {

constexpr double signal_us = 5;  // from the last raise to the collective's first instruction

/// One collective of `count` elements of the whole matrix.
void communicate(const Communicator& communicator, Operation operation, Element* data, Element* result,
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
      sends.push_back({peer, data + peer * part, part});
      receives.push_back({peer, result + peer * part, part});
    }
    communicator.exchange(sends, receives, DataType::bf16, stream);
  }
}

/// As equal as they can be.
std::vector<int> equal_groups(int waves, int count) {
  std::vector<int> groups;
  for (int group = 0; group < count; ++group)
    groups.push_back(waves * (group + 1) / count - waves * group / count);
  return groups;
}

/// Each half of what is left.
std::vector<int> halving_groups(int waves) {
  std::vector<int> groups;
  for (int left = waves; left > 0; left -= groups.back()) groups.push_back((left + 1) / 2);
  return groups;
}

}  // namespace

const CollectiveTimes& CollectiveCurves::capped(int thread_blocks) {
  const auto [place, is_new] = times_.try_emplace(thread_blocks);
  if (is_new) place->second = measure(thread_blocks);
  return place->second;
}

CollectiveTimes CollectiveCurves::measure(int thread_blocks) const {
  constexpr std::int64_t largest = 64 << 20;
  const DeviceArray<Element> data(largest / sizeof(Element));
  const DeviceArray<Element> result(largest / sizeof(Element));
  fill_random(data.data(), data.size(), DataType::bf16, static_cast<std::uint64_t>(gpu_.rank()),
              gpu_.stream());
  BackgroundGemm gemm(gpu_.multiprocessors() - thread_blocks);
  gpu_.barrier();
  const Communicator communicator = gpu_.communicator().capped(thread_blocks);
  const auto least_us = [&](std::int64_t bytes, const std::function<void()>& prepare) {
    constexpr int repetitions = 3;
    std::vector<double> times;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      prepare();
      times.push_back(gpu_.elapsed_us([&] {
        communicate(communicator, operation_, data.data(), result.data(),
                    bytes / static_cast<std::int64_t>(sizeof(Element)), gpu_.stream());
      }));
    }
    return std::ranges::min(gpu_.maxima(times));
  };
  const auto add_point = [](Curve& curve, std::int64_t bytes, double us) {
    const double before = curve.points.empty() ? 0 : curve.points.back().microseconds;
    curve.points.push_back({static_cast<double>(bytes), std::max(us, before)});
  };
  CollectiveTimes times;
  least_us(largest, [] {});  // connects
  for (std::int64_t bytes = 1 << 20; bytes <= largest; bytes *= 4) {
    const double alone_us = least_us(bytes, [] {});
    constexpr double meeting_us = 500;  // until all ranks have begun
    constexpr double worst_slowdown = 5;
    const double beside_us = least_us(bytes, [&] { gemm.keep_busy(meeting_us + worst_slowdown * alone_us); });
    gemm.wait();
    add_point(times.alone, bytes, alone_us);
    add_point(times.beside_gemm, bytes, std::max(alone_us, beside_us));
  }
  gpu_.barrier();
  return times;
}

GroupingCosts measured_costs(const Problem& problem, const Schedule& schedule, double gemm_us,
                             int multiprocessors, const CollectiveTimes& collective) {
  const Schedule whole = gpu_schedule(problem, Strategy::sequential, Layout::natural, multiprocessors,
                                      /*comm_multiprocessors=*/0);
  GroupingCosts costs;
  costs.waves = grouped_waves(problem, schedule);
  costs.wave_us =
      gemm_us * expected_gemm_us(problem, schedule) / expected_gemm_us(problem, whole) / costs.waves;
  const double bytes =
      static_cast<double>(problem.m) * static_cast<double>(problem.n) * size_of(problem.data_type);
  const double wave_bytes =
      bytes * workers(schedule) / static_cast<double>(entry_count(schedule, problem.m, problem.n));
  costs.communication_us = [=, waves = costs.waves](int first, int count) {
    const Curve& curve = first + count == waves ? collective.alone : collective.beside_gemm;
    const double begin = std::min(bytes, first * wave_bytes);
    return signal_us + curve.microseconds(std::min(bytes, (first + count) * wave_bytes) - begin);
  };
  return costs;
}

std::vector<PredictedGrouping> candidate_groupings(const GroupingCosts& costs) {
  std::vector<PredictedGrouping> candidates{best_grouping(costs)};
  const auto add = [&](std::vector<int> groups) {
    if (std::ranges::find(candidates, groups, &PredictedGrouping::groups) != candidates.end()) return;
    const double latency_us = predict_latency(costs, groups);
    candidates.push_back({std::move(groups), latency_us});
  };
  const std::vector<int> halving = halving_groups(costs.waves);
  add(halving);
  for (const int count : {1, 2, 4, 8}) {
    if (count <= costs.waves) add(equal_groups(costs.waves, count));
  }
  add({halving.rbegin(), halving.rend()});
  constexpr int inner = 3;
  if (inner + 2 <= costs.waves) {
    std::vector<int> groups = equal_groups(costs.waves - 2, inner);
    groups.insert(groups.begin(), 1);
    groups.push_back(1);
    add(std::move(groups));
  }
  std::ranges::sort(candidates, {}, &PredictedGrouping::latency_us);
  return candidates;
}

}  // namespace flashoverlap::cli
