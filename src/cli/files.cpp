#include "cli/files.hpp"

#include <filesystem>
#include <system_error>

namespace flashoverlap::cli {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code unknown;
  const auto place = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path, unknown), unknown);
  };
  const fs::path place_of_one = place(one);
  return (!place_of_one.empty() && place_of_one == place(other)) || fs::equivalent(one, other, unknown);
}

}  // namespace

void check_outputs(std::vector<NamedFile> earlier, const std::vector<NamedFile>& written) {
  for (const NamedFile& file : written) {
    if (file.path.empty()) continue;
    for (const NamedFile& other : earlier) {
      require(other.path.empty() || !is_same_file(other.path, file.path), file.option,
              shown(std::string(file.path)), fmt::format("must be another file than {}", other.option));
    }
    earlier.push_back(file);
  }
  for (const auto& [option, path] : written) {
    if (!path.empty()) check_writable(std::string(option), std::string(path));
  }
}

void make_folder(const std::string& option, const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  std::error_code ignored;
  require(
      fs::is_directory(path, ignored), option, shown(path),
      "cannot be created: " + (error ? error : std::make_error_code(std::errc::not_a_directory)).message());
}

}  // namespace flashoverlap::cli
