#include "exec/cuda/separate_context.hpp"

#include <cuda_runtime_api.h>

#include <chrono>

#include "comm/bounded_wait.hpp"
#include "cuda/driver.hpp"

namespace flashoverlap {
namespace {

struct Driver {
  PFN_cuDeviceGet_v2000 get_device = driver_function<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000);
  PFN_cuCtxCreate_v3020 create = driver_function<PFN_cuCtxCreate_v3020>("cuCtxCreate", 3020);
  PFN_cuCtxDestroy_v4000 destroy = driver_function<PFN_cuCtxDestroy_v4000>("cuCtxDestroy", 4000);
  PFN_cuCtxPushCurrent_v4000 push = driver_function<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  PFN_cuCtxPopCurrent_v4000 pop = driver_function<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000);
  PFN_cuStreamQuery_v2000 query = driver_function<PFN_cuStreamQuery_v2000>("cuStreamQuery", 2000);
  PFN_cuMemsetD32Async_v3020 set = driver_function<PFN_cuMemsetD32Async_v3020>("cuMemsetD32Async", 3020);
  PFN_cuMemcpyDtoHAsync_v3020 copy = driver_function<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020);
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

constexpr CUstream whole_context = nullptr;  // its default stream

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

SeparateContext::SeparateContext() {
  FLASHOVERLAP_CUDA(cudaGetDevice(&device_));
  CUdevice device = 0;
  check_driver("cuDeviceGet", driver().get_device(&device, device_));
  check_driver("cuCtxCreate", driver().create(&context_, 0, device));
  CUcontext popped{};
  driver().pop(&popped);
}

SeparateContext::~SeparateContext() { driver().destroy(context_); }

/// Within the context, until all of it is done.
template <typename Work>
void SeparateContext::run(const Work& work) const {
  constexpr std::chrono::seconds longest{1};
  check_driver("cuCtxPushCurrent", driver().push(context_));
  CUresult result = work();
  holds_within(longest, [&] {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) result = driver().query(whole_context);
    return result != CUDA_ERROR_NOT_READY;
  });
  CUcontext popped{};
  driver().pop(&popped);
  if (result == CUDA_ERROR_NOT_READY)
    throw WaitExpired(fmt::format("GPU {} does not answer a context of its own", device_));
  check_driver("work of a separate context", result);
}

void SeparateContext::write(std::span<const WordToWrite> words) {
  run([&] {
    for (const WordToWrite& each : words) {
      const CUresult result = driver().set(address(each.word), each.value, 1, whole_context);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

void SeparateContext::read(void* to, const void* from, std::size_t bytes) {
  run([&] { return driver().copy(to, address(from), bytes, whole_context); });
}

}  // namespace flashoverlap
