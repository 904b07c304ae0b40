#include "cli/files.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/arguments.hpp"

namespace flashoverlap::cli {
namespace {

/// Refuses a path that could not be opened or used.
[[noreturn]] void refuse(const std::string& option, const std::string& path, std::string_view what) {
  const std::string reason = std::generic_category().message(errno == 0 ? EIO : errno);
  throw InvalidArgument(option, shown(path), fmt::format("{}: {}", what, reason));
}

void refuse_directory(const std::string& option, const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), option, shown(path),
          "must be a file, not a directory");
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

void write_file(const std::string& option, const std::string& path, std::string_view text) {
  refuse_directory(option, path);
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (!file) refuse(option, path, "cannot be created");
  file << text << std::flush;
  if (!file) refuse(option, path, "cannot be written");
}

void make_folder(const std::string& option, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(
      std::filesystem::is_directory(path), option, shown(path),
      "cannot be created: " + (error ? error : std::make_error_code(std::errc::not_a_directory)).message());
}

}  // namespace flashoverlap::cli
