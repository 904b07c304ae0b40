#include "comm/shared_words.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "comm/random_word.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t size_in_bytes = SharedWords::count * sizeof(std::uint32_t);

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);  // or processes could not share them

[[noreturn]] void fail(std::string_view call, const char* name, int error) {
  throw CommunicationError(fmt::format("{} of {}: {}", call, name, std::strerror(error)));
}

class File {
 public:
  explicit File(const char* name, int flags) : descriptor_(shm_open(name, flags, S_IRUSR | S_IWUSR)) {
    if (descriptor_ < 0) fail("shm_open", name, errno);
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  operator int() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

SharedWords::SharedWords() {
  fmt::format_to_n(name_.data(), name_.size() - 1, "/flashoverlap-{:016x}{:016x}", random_word(),
                   random_word());
  map(O_RDWR | O_CREAT | O_EXCL);
}

SharedWords::SharedWords(const Name& name) : name_(name) { map(O_RDWR); }

void SharedWords::map(int flags) {
  const File file(name_.data(), flags);
  is_named_ = (flags & O_CREAT) != 0;
  // Unlike ftruncate this fails here, and not at the first store, where the host's memory is used up.
  int error = 0;
  do {
    error = is_named_ ? posix_fallocate(file, 0, size_in_bytes) : 0;
  } while (error == EINTR);
  void* const memory =
      error == 0 ? mmap(nullptr, size_in_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    const int reason = error == 0 ? errno : error;
    forget_name();
    fail(error == 0 ? "mmap" : "posix_fallocate", name_.data(), reason);
  }
  words_ = static_cast<std::atomic<std::uint32_t>*>(memory);
}

SharedWords::~SharedWords() {
  forget_name();
  munmap(words_, size_in_bytes);
}

void SharedWords::forget_name() noexcept {
  if (is_named_) shm_unlink(name_.data());
  is_named_ = false;
}

}  // namespace flashoverlap
