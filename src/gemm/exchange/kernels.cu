#include "gemm/exchange/kernel.cuh"

namespace flashoverlap::exchange {

const void* find_kernel(DataType data_type) {
  return with_element(
      data_type, []<typename Element>() { return reinterpret_cast<const void*>(&exchange_kernel<Element>); });
}

}  // namespace flashoverlap::exchange
