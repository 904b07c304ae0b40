#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "gemm/gemm_memory.hpp"

/// The seam between plans and kernel families: what an operator knows of a GEMM kernel.
namespace flashoverlap {

/// A plan's tile list on the current GPU, bound to its memory.
class GemmKernel {
 public:
  GemmKernel() = default;
  virtual ~GemmKernel() = default;
  GemmKernel(const GemmKernel&) = delete;
  GemmKernel& operator=(const GemmKernel&) = delete;

  /// Gives this rank's buffer `role` (a, b or out) other memory of the same shape and pitch, aligned to 16
  /// bytes.
  virtual void rebind(BufferRole role, void* base) = 0;

  /// Takes the tiles of another plan for the same memory, with other routes, while no launch is under way.
  /// Allocates nothing; launches come after what it enqueues on the stream. Throws `InvalidArgument` for more
  /// tiles than `route_room` says.
  virtual void replace_tiles(const Plan& plan, cudaStream_t stream) = 0;

  /// Launches the kernel; asynchronous, no allocation.
  virtual void launch(cudaStream_t stream) const = 0;

  /// Throws `WaitExpired` if a wait expired in a launch that is complete. Waits on the host for a copy on
  /// this stream, at most for `GemmOptions::wait_limit_ns`; past it throws `WaitExpired` too.
  virtual void check_waits(cudaStream_t stream) const = 0;

  /// By tile, when its stores were issued in the last launch, in ns of the GPU's clock; empty where they are
  /// not recorded. Synchronises with the GPU.
  virtual std::vector<std::uint64_t> tile_times() const = 0;
};

/// A kernel of the family that the current GPU runs; uploads the plan's lists. Throws `InvalidArgument` for
/// what the family cannot do (`require_kernel`) and where no family runs on the GPU.
std::unique_ptr<GemmKernel> make_gemm_kernel(const Plan& plan, const GemmMemory& memory,
                                             const GemmOptions& options = {});

}  // namespace flashoverlap
