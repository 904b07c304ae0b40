/// An open file, closed at the end of its scope.
#pragma once

#include <unistd.h>

namespace flashoverlap {

class Descriptor {
 public:
  /// `number`: of the open file, or -1 where it could not be opened.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (is_open()) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  const int number_;
};

}  // namespace flashoverlap
