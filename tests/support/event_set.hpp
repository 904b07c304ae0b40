// Sets of numbered events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashoverlap::testing {

class EventSet {
 public:
  explicit EventSet(std::size_t events) : words_(events / 64 + 1, 0) {}

  void add(std::size_t event) { words_[event / 64] |= std::uint64_t{1} << event % 64; }
  bool has(std::size_t event) const { return (words_[event / 64] >> event % 64 & 1) != 0; }
  void merge(const EventSet& other) {
    for (std::size_t word = 0; word < words_.size(); ++word) words_[word] |= other.words_[word];
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace flashoverlap::testing
