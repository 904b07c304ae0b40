/// Reading within limits and writing without loss. `option` names the file in errors, as whoever asked for it
/// did.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace flashoverlap {

/// What reading stops at.
struct ReadLimits {
  std::size_t bytes = 1'500'000'000;                 ///< more than the largest plans that can be made
  std::chrono::milliseconds without_writer{10'000};  ///< until something is written to a FIFO
  std::chrono::milliseconds silence{600'000};        ///< between two pieces that its writer writes
};

/// The whole text of a file or pipe. Devices are refused, as they may never end.
std::string read_file(const std::string& option, const std::string& path, const ReadLimits& limits = {});

/// Refuses what `write_file` would refuse, before long work is done for it. Writes nothing.
void check_writable(const std::string& option, const std::string& path);

/// Replaces a regular file, or creates it, in one step: until the whole text is on the disk, the path leads
/// to what it led to before. The permissions of an existing file and links to it stay. Other files, such as
/// /dev/stdout and FIFOs, are written directly.
void write_file(const std::string& option, const std::string& path, std::string_view text);

/// Whether `write_file` replaces or creates what the path leads to, so that it can do so again.
bool is_replaceable(const std::string& option, const std::string& path);

/// Removes the hidden files that writers have left in a folder when they were killed, if nothing was written
/// to them for this long: they may be those of writers that still live.
void remove_leftovers(const std::string& folder, std::chrono::seconds age);

}  // namespace flashoverlap
