#include "tune/entry_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "flashoverlap/plan_cache.hpp"
#include "plan/json/key_writer.hpp"
#include "tune/entry_keys.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t hash_digits = 16;
constexpr std::string_view entry_suffix = ".json";

/// FNV-1a of all fields: the same for every program, compiler and machine.
std::string hash(const auto& visit_fields) {
  KeyWriter writer;
  writer.object([&] { visit_fields(writer); });
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : writer.text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:0{}x}", hash, hash_digits);
}

/// Fit for a file name.
std::string plain(std::string text) {
  constexpr std::size_t longest = 40;
  text.resize(std::min(text.size(), longest));
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
  };
  std::ranges::replace_if(text, std::not_fn(is_plain), '_');
  return text;
}

/// "-b": what an operation gathers, or how it cuts its matrix.
std::string form(const Problem& problem) {
  if (problem.operation == Operation::all_gather_gemm) return fmt::format("-{}", name(problem.gathered));
  if (is_all_to_all(problem.operation)) return fmt::format("-{}", name(problem.exchange));
  return "";
}

}  // namespace

std::string folder_name(const TuningSite& site) {
  return fmt::format("{}-{}_ranks-{}{}-driver_{}-nccl_{}-{}", plain(site.gpu), site.ranks, plain(site.fabric),
                     site.concurrent_collectives ? "-concurrent" : "", plain(site.driver), plain(site.nccl),
                     hash([&](KeyWriter& writer) { visit_keys(writer, site); }));
}

std::string entry_name(const TunedPlan& plan) {
  const Problem& problem = plan.problem;
  const std::string of_both = hash([&](KeyWriter& writer) {
    visit_keys(writer, problem);
    writer("reader", plan.reader);
  });
  return fmt::format("{}{}{}-m{}-n{}-k{}-{}_ranks-{}-{}{}", name(problem.operation), form(problem),
                     plan.reader == Reader::norm ? "-norm" : "", problem.m, problem.n, problem.k,
                     problem.ranks, name(problem.data_type), of_both, entry_suffix);
}

std::string_view hash_of_folder(std::string_view name) {
  if (name.size() <= hash_digits || name[name.size() - hash_digits - 1] != '-') return {};
  const std::string_view digits = name.substr(name.size() - hash_digits);
  return digits.find_first_not_of("0123456789abcdef") == digits.npos ? digits : std::string_view();
}

std::string_view hash_of_entry(std::string_view name) {
  if (!name.ends_with(entry_suffix)) return {};
  return hash_of_folder(name.substr(0, name.size() - entry_suffix.size()));
}

bool is_set_aside(std::string_view name) {
  for (const std::string_view suffix : {damaged_suffix, outdated_suffix}) {
    if (name.ends_with(suffix) && !hash_of_entry(name.substr(0, name.size() - suffix.size())).empty())
      return true;
  }
  return false;
}

}  // namespace flashoverlap
