/// Files that the command line names: what goes wrong with one is said by the option that named it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"

namespace flashoverlap::cli {

/// The file's whole text.
std::string read_file(const std::string& option, const std::string& path);

/// `read(text)` of a file's text; what it refuses is named by option and file as well.
template <typename Read>
auto from_file(const std::string& option, const std::string& path, const Read& read) {
  const std::string text = read_file(option, path);
  try {
    return read(text);
  } catch (const InvalidArgument& error) {
    throw error.renamed(option + " " + shown(path) + ": " + error.argument());
  }
}

/// Refuses what `write_file` would, before what takes long is done for it.
void check_writable(const std::string& option, const std::string& path);

struct NamedFile {
  std::string_view option;
  std::string_view path;  ///< empty: not given
};

/// Refuses a file that is to be written if an earlier option, or one before it, names it too: what that reads
/// or writes would be lost.
void check_distinct(std::vector<NamedFile> earlier, const std::vector<NamedFile>& written);

void write_file(const std::string& option, const std::string& path, std::string_view text);

/// With the folders above it; it may exist.
void make_folder(const std::string& option, const std::string& path);

}  // namespace flashoverlap::cli
