/// A hash that serves as a random number generator without state: the n-th number of a seed is
/// splitmix64(seed, n).
#pragma once

#include <cstdint>

namespace flashoverlap {

constexpr std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace flashoverlap
