#include "tune/shared_schedules.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <utility>

#include "flashoverlap/error.hpp"
#include "plan/json/plan_keys.hpp"

namespace flashoverlap {
namespace {

/// Writes fields as numbers, which fp32 must hold.
struct NumberWriter {
  std::vector<double> numbers{};

  template <typename Field>
  void operator()(std::string_view /*key*/, const Field& field) {
    numbers.push_back(static_cast<double>(field));
  }
  void operator()(std::string_view key, const std::vector<int>& list) {
    (*this)(key, list.size());
    for (const int each : list) (*this)(key, each);
  }
  void unless_none(std::string_view key, auto number, int /*absent*/) { (*this)(key, number); }
};

struct NumberReader {
  std::vector<double>::const_iterator next;

  template <typename Field>
  void operator()(std::string_view /*key*/, Field& field) {
    if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(static_cast<int>(*next++));
    } else {
      field = static_cast<Field>(*next++);
    }
  }
  void operator()(std::string_view key, std::vector<int>& list) {
    list.resize(static_cast<std::size_t>(*next++));
    for (int& each : list) (*this)(key, each);
  }
  void unless_none(std::string_view key, auto& number, int /*absent*/) { (*this)(key, number); }
};

std::vector<double> numbers_of(const std::vector<Candidate>& candidates) {
  NumberWriter write;
  write("", candidates.size());
  for (const Candidate& candidate : candidates) {
    visit_keys(write, candidate.schedule);
    write("", candidate.predicted_us);
  }
  return std::move(write.numbers);
}

std::vector<Candidate> candidates_of(const std::vector<double>& numbers) {
  NumberReader read{numbers.begin()};
  std::size_t count = 0;
  read("", count);
  std::vector<Candidate> candidates(count);
  for (Candidate& candidate : candidates) {
    visit_keys(read, candidate.schedule);
    read("", candidate.predicted_us);
  }
  return candidates;
}

constexpr double failed =
    std::numeric_limits<double>::infinity();  ///< in place of how many numbers there are

}  // namespace

std::vector<Candidate> decided_by_first(const GpuRank& gpu,
                                        const std::function<std::vector<Candidate>()>& decide) {
  std::vector<double> numbers;
  std::exception_ptr thrown;
  std::string why;
  if (gpu.is_first()) {
    try {
      numbers = numbers_of(decide());
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      why = error.what();
    } catch (...) {
      thrown = std::current_exception();
      why = "an exception of another type";
    }
  }
  const double count = gpu.maximum(thrown ? failed : static_cast<double>(numbers.size()));
  if (count == failed) {
    why = shared_text(gpu, why);
    if (thrown) std::rethrow_exception(thrown);
    throw Error(fmt::format("rank 0: {}", why));
  }
  numbers.resize(static_cast<std::size_t>(count));
  return candidates_of(gpu.gather(numbers).front());
}

std::string shared_text(const GpuRank& gpu, const std::string& text) {
  const auto size =
      static_cast<std::size_t>(gpu.maximum(gpu.is_first() ? static_cast<double>(text.size()) : 0));
  std::vector<double> codes(size);
  if (gpu.is_first()) std::ranges::transform(text, codes.begin(), [](unsigned char code) { return code; });
  const std::vector<std::vector<double>> of_ranks = gpu.gather(codes);
  std::string shared;
  for (const double code : of_ranks.front())
    shared.push_back(static_cast<char>(static_cast<unsigned char>(code)));
  return shared;
}

}  // namespace flashoverlap
