#include "measure/library_gemm.hpp"

#include "flashoverlap/error.hpp"
#include "measure/gpu_compare_kernels.hpp"
#include "plan/expert_parts.hpp"

namespace flashoverlap {
namespace {

const Element* at(const void* operand, std::int64_t elements) {
  return static_cast<const Element*>(operand) + elements;
}
Element* at(void* result, std::int64_t elements) { return static_cast<Element*>(result) + elements; }

}  // namespace

LibraryGemm::LibraryGemm(const Problem& problem, int rank, void* workspace) {
  require(problem.experts == 1 || problem.a_layout == OperandLayout::k_contiguous, "a_layout",
          name(problem.a_layout),
          "must be k_contiguous where cuBLASLt multiplies the rows of several experts");
  const Shape c = gemm_shape(problem, rank);
  const Range all{0, static_cast<std::int32_t>(c.rows)};
  for (const auto& [rows, expert] : ExpertParts(problem).within(rank, all)) {
    parts_.push_back({rows.first * problem.k, expert * problem.n * problem.k, rows.first * c.cols,
                      CublasGemm(problem.data_type, {rows.count, c.cols}, problem.k, problem.a_layout,
                                 problem.b_layout, {}, workspace)});
  }
}

void LibraryGemm::choose_algorithm(const void* a, const void* b, void* c, cudaStream_t stream) {
  for (Part& part : parts_) part.gemm.choose_algorithm(at(a, part.a), at(b, part.b), at(c, part.c), stream);
}

void LibraryGemm::launch(const void* a, const void* b, void* c, cudaStream_t stream) const {
  for (const Part& part : parts_) part.gemm.launch(at(a, part.a), at(b, part.b), at(c, part.c), stream);
}

}  // namespace flashoverlap
