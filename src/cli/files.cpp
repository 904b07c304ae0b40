#include "cli/files.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/arguments.hpp"

namespace flashoverlap::cli {
namespace {

std::string last_reason() {
  return std::generic_category().message(errno == 0 ? EIO : errno);
}

/// Refuses a path that could not be opened or used.
[[noreturn]] void refuse(const std::string& option, const std::string& path, std::string_view what) {
  throw InvalidArgument(option, shown(path), fmt::format("{}: {}", what, last_reason()));
}

void refuse_directory(const std::string& option, const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), option, shown(path),
          "must be a file, not a directory");
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code unknown;
  const auto place = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  };
  const std::filesystem::path place_of_one = place(one);
  return (!place_of_one.empty() && place_of_one == place(other)) ||
         std::filesystem::equivalent(one, other, unknown);
}

}  // namespace

std::string read_file(const std::string& option, const std::string& path) {
  refuse_directory(option, path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(option, path, "cannot be opened");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) refuse(option, path, "cannot be read");
  return text;
}

void check_writable(const std::string& option, const std::string& path) {
  refuse_directory(option, path);
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(path, ignored);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) refuse(option, path, "cannot be created");
  if (is_new) std::filesystem::remove(path, ignored);
}

void check_distinct(std::vector<NamedFile> earlier, const std::vector<NamedFile>& written) {
  for (const NamedFile& file : written) {
    if (file.path.empty()) continue;
    for (const NamedFile& other : earlier) {
      require(other.path.empty() || !is_same_file(other.path, file.path), file.option,
              shown(std::string(file.path)), fmt::format("must be another file than {}", other.option));
    }
    earlier.push_back(file);
  }
}

void write_file(const std::string& option, const std::string& path, std::string_view text) {
  refuse_directory(option, path);
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (!file) refuse(option, path, "cannot be created");
  file << text << std::flush;
  if (!file) throw Error(fmt::format("{} = {}: cannot be written: {}", option, shown(path), last_reason()));
}

void make_folder(const std::string& option, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(
      std::filesystem::is_directory(path), option, shown(path),
      "cannot be created: " + (error ? error : std::make_error_code(std::errc::not_a_directory)).message());
}

}  // namespace flashoverlap::cli
