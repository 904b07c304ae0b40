#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "file/descriptor.hpp"
#include "file/file.hpp"
#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto wait_for_reader = 10s;  ///< of a FIFO
constexpr std::string_view hidden_prefix = ".flashoverlap-";

std::string reason() { return std::generic_category().message(errno); }

/// What an option names: the file that its path leads to.
struct Target {
  std::string option;
  std::string path;
  fs::path file;                    ///< after all links
  std::optional<struct stat> old;   ///< none where it is to be created
  std::optional<int> own_stream{};  ///< where it is this process's standard output or error

  bool is_replaced() const { return !old || (S_ISREG(old->st_mode) && !own_stream); }

  [[noreturn]] void refuse() const {
    throw InvalidArgument(option, shown(path), "cannot be created: " + reason());
  }
  [[noreturn]] void fail() const {
    throw Error(fmt::format("{} = {}: cannot be written: {}", option, shown(path), reason()));
  }
};

Target target_of(const std::string& option, const std::string& path) {
  Target target{option, path, path, {}};
  struct stat state {};
  if (stat(path.c_str(), &state) == 0) {
    require(!S_ISDIR(state.st_mode), option, shown(path), "must be a file, not a directory");
    if (access(path.c_str(), W_OK) != 0) target.refuse();
    target.old = state;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      struct stat open_file {};
      if (fstat(stream, &open_file) == 0 && open_file.st_dev == state.st_dev &&
          open_file.st_ino == state.st_ino)
        target.own_stream = stream;
    }
  } else if (errno != ENOENT) {
    target.refuse();
  }
  std::error_code failed;
  while (!failed && fs::is_symlink(target.file, failed))
    target.file = target.file.parent_path() / fs::read_symlink(target.file, failed);
  return target;
}

void write_all(const Target& target, int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) target.fail();
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// A file without a name in the folder of its target, whose name it takes when it is whole. Where the file
/// system has only files with names, it has a hidden one until then.
class Replacement {
 public:
  explicit Replacement(const Target& target)
      : target_(target),
        folder_(target.file.has_parent_path() ? target.file.parent_path() : "."),
        file_(create()) {
    if (!file_.is_open()) target_.refuse();
    if (!target_.old) return;
    // Only root may give a file to another owner; what others replace becomes theirs.
    [[maybe_unused]] const int kept = fchown(file_.number(), target_.old->st_uid, target_.old->st_gid);
    fchmod(file_.number(), target_.old->st_mode & 07777);
  }
  ~Replacement() {
    if (!hidden_.empty()) unlink(hidden_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(std::string_view text) { write_all(target_, file_.number(), text); }

  void take_name() {
    if (fsync(file_.number()) != 0) target_.fail();
    const std::string unnamed = fmt::format("/proc/self/fd/{}", file_.number());
    const auto link = [&](const char* name) {
      return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
    };
    if (hidden_.empty() && with_hidden_name(link) < 0) target_.fail();
    if (rename(hidden_.c_str(), target_.file.c_str()) != 0) target_.fail();
    hidden_.clear();
  }

 private:
  int create() {
    // Nobody can open it before it has the permissions of the old file.
    const mode_t mode = target_.old ? 0600 : 0666;
    const int unnamed = open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (unnamed >= 0) return unnamed;
    return with_hidden_name(
        [mode](const char* name) { return open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode); });
  }

  /// The result of `make(name)`, which is called until a name is free. Negative: failed.
  template <typename Make>
  int with_hidden_name(const Make& make) {
    for (int attempt = 0; attempt < 100; ++attempt) {
      hidden_ = folder_ / fmt::format("{}{}-{}", hidden_prefix, getpid(), attempt);
      const int made = make(hidden_.c_str());
      if (made >= 0) return made;
      if (errno != EEXIST) break;
    }
    hidden_.clear();
    return -1;
  }

  const Target& target_;
  const fs::path folder_;
  fs::path hidden_;
  const Descriptor file_;
};

/// Waits a while for the reader of a FIFO.
int open_directly(const Target& target) {
  if (target.own_stream) return dup(*target.own_stream);
  const auto end = std::chrono::steady_clock::now() + wait_for_reader;
  for (;;) {
    const int file = open(target.path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) {
      fcntl(file, F_SETFL, 0);  // from here on at the reader's speed
      return file;
    }
    if (errno != ENXIO || !S_ISFIFO(target.old->st_mode) || std::chrono::steady_clock::now() > end) return -1;
    std::this_thread::sleep_for(10ms);
  }
}

}  // namespace

void check_writable(const std::string& option, const std::string& path) {
  const Target target = target_of(option, path);
  if (target.is_replaced()) const Replacement tried(target);
}

bool is_replaceable(const std::string& option, const std::string& path) {
  return target_of(option, path).is_replaced();
}

void write_file(const std::string& option, const std::string& path, std::string_view text) {
  const Target target = target_of(option, path);
  if (target.is_replaced()) {
    Replacement file(target);
    file.write(text);
    return file.take_name();
  }
  std::fflush(stdout);
  const Descriptor file(open_directly(target));
  if (!file.is_open()) target.refuse();
  write_all(target, file.number(), text);
}

void remove_leftovers(const std::string& folder, std::chrono::seconds age) {
  const auto newest = fs::file_time_type::clock::now() - age;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    std::error_code gone;
    if (!file->path().filename().string().starts_with(hidden_prefix)) continue;
    if (file->last_write_time(gone) <= newest && !gone) fs::remove(file->path(), gone);
  }
}

}  // namespace flashoverlap
