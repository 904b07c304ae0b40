/// Files that the command line names. What goes wrong with one is said by the option that named it.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"

namespace flashoverlap::cli {

/// What reading stops at.
struct ReadLimits {
  std::size_t bytes = 1'500'000'000;                 ///< more than the largest plans that can be made
  std::chrono::milliseconds without_writer{10'000};  ///< until something is written to a FIFO
  std::chrono::milliseconds silence{600'000};        ///< between two pieces that its writer writes
};

/// The whole text of a file or pipe. Devices are refused, as they may never end.
std::string read_file(const std::string& option, const std::string& path, const ReadLimits& limits = {});

/// `use()`, with what it refuses named by option and file as well.
template <typename Use>
auto naming_file(const std::string& option, const std::string& path, const Use& use) {
  try {
    return use();
  } catch (const InvalidArgument& error) {
    throw error.renamed(option + " " + shown(path) + ": " + error.argument());
  }
}

/// `read(text)` of a file's text.
template <typename Read>
auto from_file(const std::string& option, const std::string& path, const Read& read) {
  const std::string text = read_file(option, path);
  return naming_file(option, path, [&] { return read(text); });
}

/// Refuses what `write_file` would refuse, before long work is done for it. Writes nothing.
void check_writable(const std::string& option, const std::string& path);

struct NamedFile {
  std::string_view option;
  std::string_view path;  ///< empty: not given
};

/// Refuses a file to be written that is also named by an earlier option, as its content would be lost.
void check_distinct(std::vector<NamedFile> earlier, const std::vector<NamedFile>& written);

/// Replaces a regular file, or creates it, in one step: until the whole text is on the disk, the path leads
/// to what it led to before. The permissions of an existing file and links to it stay. Other files, such as
/// /dev/stdout and FIFOs, are written directly.
void write_file(const std::string& option, const std::string& path, std::string_view text);

/// With the folders above it; it may exist.
void make_folder(const std::string& option, const std::string& path);

}  // namespace flashoverlap::cli
