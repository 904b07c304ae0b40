#include <cutlass/gemm/device/gemm.h>

#include <stdexcept>

#include "cutlass_gemms.hpp"

namespace {

template <int Rows, int Cols, int Depth, int WarpRows, int WarpCols, int Stages>
CutlassGemm gemm() {
  using Element = cutlass::bfloat16_t;
  using Gemm = cutlass::gemm::device::Gemm<
      Element, cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor, Element,
      cutlass::layout::RowMajor, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
      cutlass::gemm::GemmShape<Rows, Cols, Depth>, cutlass::gemm::GemmShape<WarpRows, WarpCols, Depth>,
      cutlass::gemm::GemmShape<16, 8, 16>,
      cutlass::epilogue::thread::LinearCombination<Element, 8, float, float,
                                                   cutlass::epilogue::thread::ScaleType::Nothing>,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, Stages>;
  const auto enqueue = [](int m, int n, int k, const void* a, const void* b, void* c, cudaStream_t stream) {
    auto* const out = static_cast<Element*>(c);
    const typename Gemm::Arguments arguments({m, n, k}, {static_cast<const Element*>(a), k},
                                             {static_cast<const Element*>(b), k}, {out, n}, {out, n}, {});
    if (Gemm()(arguments, nullptr, stream) != cutlass::Status::kSuccess)
      throw std::runtime_error("CUTLASS refuses the GEMM");
  };
  return {std::to_string(Rows) + "x" + std::to_string(Cols) + "x" + std::to_string(Depth) + "_" +
              std::to_string(Stages),
          enqueue};
}

}  // namespace

std::vector<CutlassGemm> cutlass_gemms() {
  return {gemm<256, 128, 32, 64, 64, 3>(), gemm<128, 256, 32, 64, 64, 3>(), gemm<256, 128, 64, 64, 64, 3>(),
          gemm<128, 256, 64, 64, 64, 3>(), gemm<128, 128, 64, 64, 64, 4>(), gemm<128, 128, 32, 64, 64, 5>()};
}
