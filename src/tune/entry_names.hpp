/// The names of the cache's folders and files. Each ends with a hash of all that it stands for, so that no
/// two are the same and others' files are told apart.
#pragma once

#include <string>
#include <string_view>

#include "flashoverlap/plan_cache.hpp"

namespace flashoverlap {

/// "gemm_all_reduce-m4096-n8192-k4096-2_ranks-bf16-0123456789abcdef.json": of the problem and the reader.
std::string entry_name(const TunedPlan& plan);

/// The hash of a name: 16 digits. Empty: the name is not one of the cache.
std::string_view hash_of_folder(std::string_view name);
std::string_view hash_of_entry(std::string_view name);

/// What is added to the names of entries that are set aside.
inline constexpr std::string_view damaged_suffix = ".damaged";
inline constexpr std::string_view outdated_suffix = ".outdated";

/// Whether this was an entry until it was set aside.
bool is_set_aside(std::string_view name);

}  // namespace flashoverlap
