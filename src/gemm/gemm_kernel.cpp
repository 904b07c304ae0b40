#include "gemm/gemm_kernel.hpp"

#include <fmt/ranges.h>

#include "cuda/error.hpp"
#include "flashoverlap/kernels.hpp"
#include "gemm/requirements.hpp"
#include "gemm/sm90/sm90_gemm.hpp"

namespace flashoverlap {

namespace {

int compute_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  FLASHOVERLAP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FLASHOVERLAP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

}  // namespace

std::unique_ptr<GemmKernel> make_gemm_kernel(const Plan& plan, const GemmMemory& memory,
                                             const GemmOptions& options) {
  require_kernel(plan, kernel_family(compute_capability()), options.a_layout, options.b_layout);
  return std::make_unique<Sm90Gemm>(plan, memory, options);
}

}  // namespace flashoverlap
