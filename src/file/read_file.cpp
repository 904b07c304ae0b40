#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "file/descriptor.hpp"
#include "file/file.hpp"
#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& path, std::string_view what) {
  throw InvalidArgument(option, shown(path),
                        fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

}  // namespace

std::string read_file(const std::string& option, const std::string& path, const ReadLimits& limits) {
  const auto require_size = [&](std::size_t size) {
    require(size <= limits.bytes, option, shown(path),
            "must not be larger than " + readable_bytes(static_cast<double>(limits.bytes)));
  };
  // Opened without waiting: a FIFO may never have a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat state {};
  if (!file.is_open() || fstat(file.number(), &state) != 0) refuse(option, path, "cannot be opened");
  require(!S_ISDIR(state.st_mode), option, shown(path), "must be a file, not a directory");
  require(S_ISREG(state.st_mode) || S_ISFIFO(state.st_mode), option, shown(path),
          "must be a file or a pipe, not a device");
  require_size(static_cast<std::size_t>(state.st_size));

  std::string text;
  text.reserve(static_cast<std::size_t>(state.st_size));
  std::vector<char> piece(std::size_t{1} << 20);
  bool has_writer = S_ISREG(state.st_mode);  // or had: nothing to read is the end then
  for (;;) {
    const ssize_t size = read(file.number(), piece.data(), piece.size());
    if (size > 0) {
      has_writer = true;
      require_size(text.size() + static_cast<std::size_t>(size));
      text.append(piece.data(), static_cast<std::size_t>(size));
      continue;
    }
    if (size == 0 && has_writer) return text;
    if (size < 0 && errno != EAGAIN && errno != EINTR) refuse(option, path, "cannot be read");
    if (size < 0 && errno == EAGAIN) has_writer = true;
    const std::chrono::milliseconds limit = has_writer ? limits.silence : limits.without_writer;
    pollfd awaited{file.number(), POLLIN, 0};
    const int changes = poll(&awaited, 1, static_cast<int>(limit.count()));
    require(changes != 0, option, shown(path),
            fmt::format("nothing was written to this pipe within {} s",
                        std::chrono::duration<double>(limit).count()));
    if (changes > 0) has_writer = true;
  }
}

}  // namespace flashoverlap
