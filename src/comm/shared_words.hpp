#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flashoverlap {

/// Words of host memory that processes of one host share: told and read without CUDA, for which a thread may
/// have to wait while the GPU is stuck.
class SharedWords {
 public:
  static constexpr std::size_t count = 1024;
  using Name = std::array<char, 48>;  ///< ends with zeros

  /// New ones, all zero. Throws `CommunicationError` if the host does not give them.
  SharedWords();
  /// Those of that name, of this process or another one. Throws `CommunicationError` if there are none.
  explicit SharedWords(const Name& name);
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  const Name& name() const noexcept { return name_; }
  /// They can be opened no more, and end with the last process that has opened them. Who made them calls it
  /// once all have, or else they outlive a process that is killed.
  void forget_name() noexcept;

  std::atomic<std::uint32_t>& operator[](std::size_t index) const noexcept { return words_[index]; }

 private:
  void map(int flags);

  Name name_{};
  bool is_named_ = false;  // by this object
  std::atomic<std::uint32_t>* words_ = nullptr;
};

}  // namespace flashoverlap
