#include "gemm/gemm_kernel.hpp"

#include "cuda/properties.hpp"
#include "gemm/requirements.hpp"
#include "gemm/sm80/sm80_gemm.hpp"
#include "gemm/sm90/sm90_gemm.hpp"

namespace flashoverlap {

std::unique_ptr<GemmKernel> make_gemm_kernel(const Plan& plan, const GemmMemory& memory,
                                             const GemmOptions& options) {
  const KernelFamily& family = require_family(current_compute_capability());
  require_kernel(plan, family);
  if (family.name == "sm80") return std::make_unique<Sm80Gemm>(plan, memory, options);
  return std::make_unique<Sm90Gemm>(plan, memory, options);
}

}  // namespace flashoverlap
