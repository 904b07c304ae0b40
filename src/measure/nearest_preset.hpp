#pragma once

#include <string_view>

#include "flashoverlap/machine.hpp"

namespace flashoverlap {

/// What a GPU says of itself.
struct GpuKind {
  std::string_view name{};  ///< by the driver: "NVIDIA GeForce RTX 4090"
  int compute_capability = 0;
  int multiprocessors = 0;
  bool peer_access = false;  ///< as strategies `copy` and `store` need it
};

/// The preset that is most like a GPU, of those whose GPUs run the same kernels, with the GPU's number of
/// multiprocessors, and without copies and stores to peers where it has no peer access. Throws
/// `InvalidArgument` where there is none.
Machine nearest_preset(const GpuKind& gpu);

}  // namespace flashoverlap
