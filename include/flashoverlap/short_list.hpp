/// The lists of a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace flashoverlap {

/// A vector with room for one element in itself: of the millions of messages that many ranks have, most wait
/// for one counter, raise one, or send and receive one part.
template <typename T>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard containers' name

  ShortList() = default;
  ShortList(std::initializer_list<T> elements) : ShortList(elements.begin(), elements.end()) {}
  ShortList(const std::vector<T>& elements) : ShortList(elements.begin(), elements.end()) {}
  template <typename Iterator>
  ShortList(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  ShortList(const ShortList& other) : ShortList(other.begin(), other.end()) {}
  ShortList(ShortList&& other) noexcept { swap(other); }
  ShortList& operator=(ShortList other) noexcept {
    swap(other);
    return *this;
  }
  ~ShortList() {
    if (room_ > 1) delete[] elements_.many;
  }

  void swap(ShortList& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return room_ > 1 ? elements_.many : &elements_.one; }
  T* end() { return begin() + size_; }
  const T* begin() const { return room_ > 1 ? elements_.many : &elements_.one; }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t index) { return begin()[index]; }
  const T& operator[](std::size_t index) const { return begin()[index]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return *(end() - 1); }
  const T& back() const { return *(end() - 1); }

  void push_back(const T& element) {
    const T copied = element;  // which may be in this list
    if (size_ == room_) {
      T* const many = new T[std::size_t{2} * room_];
      std::copy(begin(), end(), many);
      if (room_ > 1) delete[] elements_.many;
      elements_.many = many;
      room_ *= 2;
    }
    std::construct_at(begin() + size_++, copied);
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  T* erase(T* first, T* last) {
    size_ -= static_cast<std::uint32_t>(last - first);
    std::copy(last, end() + (last - first), first);
    return first;
  }
  T* erase(T* position) { return erase(position, position + 1); }
  T* insert(T* position, const T& element) { return insert(position, &element, &element + 1); }
  template <typename Iterator>
  T* insert(T* position, Iterator first, Iterator last) {
    const std::ptrdiff_t before = position - begin();
    const auto old_size = static_cast<std::ptrdiff_t>(size());
    for (; first != last; ++first) push_back(*first);
    std::rotate(begin() + before, begin() + old_size, end());
    return begin() + before;
  }

  bool operator==(const ShortList& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  union Elements {
    T* many = nullptr;
    T one;
  };

  Elements elements_{};
  std::uint32_t size_ = 0;
  std::uint32_t room_ = 1;
};

template <typename T, typename Predicate>
void erase_if(ShortList<T>& list, Predicate&& predicate) {
  list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
}

}  // namespace flashoverlap
