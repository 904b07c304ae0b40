/// Files that the command line names. What goes wrong with one is said by the option that named it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "file/file.hpp"

namespace flashoverlap::cli {

/// `use()`, with what it refuses named by option and file as well.
template <typename Use>
auto naming_file(const std::string& option, const std::string& path, const Use& use) {
  const auto place = [&] { return option + " " + shown(path) + ": "; };
  try {
    return use();
  } catch (const InvalidArgument& error) {
    throw error.renamed(place() + error.argument());
  } catch (const InvalidPlan& error) {
    throw InvalidPlan(place() + error.what());
  }
}

/// `read(text)` of a file's text.
template <typename Read>
auto from_file(const std::string& option, const std::string& path, const Read& read) {
  const std::string text = read_file(option, path);
  return naming_file(option, path, [&] { return read(text); });
}

struct NamedFile {
  std::string_view option;
  std::string_view path;  ///< empty: not given
};

/// Refuses files to be written before anything is done for them: one that is also named by an earlier option,
/// as its content would be lost, and what `write_file` would refuse.
void check_outputs(std::vector<NamedFile> earlier, const std::vector<NamedFile>& written);

/// With the folders above it; it may exist.
void make_folder(const std::string& option, const std::string& path);

}  // namespace flashoverlap::cli
