#include "gemm/sm90_kernel.cuh"

namespace flashoverlap::sm90 {

Kernel kernel_128x112_1(DataType data_type, OperandLayout a, OperandLayout b) {
  return find_kernel<112, 1>(data_type, a, b);
}

}  // namespace flashoverlap::sm90
