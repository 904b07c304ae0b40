#include "exec/cuda/separate_context.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "comm/bounded_wait.hpp"
#include "cuda/driver.hpp"

namespace flashoverlap {
namespace {

struct Driver {
  PFN_cuDeviceGet_v2000 get_device = driver_function<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000);
  PFN_cuDevicePrimaryCtxGetState_v7000 primary_state =
      driver_function<PFN_cuDevicePrimaryCtxGetState_v7000>("cuDevicePrimaryCtxGetState", 7000);
  PFN_cuDevicePrimaryCtxRetain_v7000 retain_primary =
      driver_function<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 7000);
  PFN_cuDevicePrimaryCtxRelease_v11000 release_primary =
      driver_function<PFN_cuDevicePrimaryCtxRelease_v11000>("cuDevicePrimaryCtxRelease", 11000);
  PFN_cuCtxCreate_v3020 create = driver_function<PFN_cuCtxCreate_v3020>("cuCtxCreate", 3020);
  PFN_cuCtxDestroy_v4000 destroy = driver_function<PFN_cuCtxDestroy_v4000>("cuCtxDestroy", 4000);
  PFN_cuCtxPushCurrent_v4000 push = driver_function<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  PFN_cuCtxPopCurrent_v4000 pop = driver_function<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000);
  PFN_cuCtxEnablePeerAccess_v4000 enable_access =
      driver_function<PFN_cuCtxEnablePeerAccess_v4000>("cuCtxEnablePeerAccess", 4000);
  PFN_cuStreamCreate_v2000 create_stream = driver_function<PFN_cuStreamCreate_v2000>("cuStreamCreate", 2000);
  PFN_cuStreamQuery_v2000 query = driver_function<PFN_cuStreamQuery_v2000>("cuStreamQuery", 2000);
  PFN_cuMemsetD32Async_v3020 set = driver_function<PFN_cuMemsetD32Async_v3020>("cuMemsetD32Async", 3020);
  PFN_cuMemcpyDtoHAsync_v3020 copy = driver_function<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020);
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

/// The context that the CUDA runtime uses on a GPU, kept alive.
class PrimaryContext {
 public:
  explicit PrimaryContext(CUdevice device) : device_(device) {
    check_driver("cuDevicePrimaryCtxRetain", driver().retain_primary(&context_, device));
  }
  ~PrimaryContext() { driver().release_primary(device_); }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  operator CUcontext() const { return context_; }

 private:
  CUdevice device_;
  CUcontext context_{};
};

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

SeparateContext::SeparateContext() {
  FLASHOVERLAP_CUDA(cudaGetDevice(&device_));
  CUdevice device = 0;
  check_driver("cuDeviceGet", driver().get_device(&device, device_));
  check_driver("cuCtxCreate", driver().create(&context_, 0, device));
  const CUresult made = driver().create_stream(&stream_, CU_STREAM_NON_BLOCKING);
  CUcontext popped{};
  driver().pop(&popped);
  if (made != CUDA_SUCCESS) driver().destroy(context_);
  check_driver("cuStreamCreate", made);
}

SeparateContext::~SeparateContext() { driver().destroy(context_); }

/// Within the context, until all of it is done.
template <typename Work>
void SeparateContext::run(const Work& work) const {
  constexpr std::chrono::seconds longest{1};
  check_driver("cuCtxPushCurrent", driver().push(context_));
  CUresult result = work();
  holds_within(longest, [&] {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) result = driver().query(stream_);
    return result != CUDA_ERROR_NOT_READY;
  });
  CUcontext popped{};
  driver().pop(&popped);
  if (result == CUDA_ERROR_NOT_READY)
    throw WaitExpired(fmt::format("GPU {} does not answer a context of its own", device_));
  check_driver("work of a separate context", result);
}

void SeparateContext::reach(int device) {
  if (device == device_ || std::ranges::count(reached_, device) > 0) return;
  CUdevice other = 0;
  unsigned flags = 0;
  int is_used_here = 0;
  // Memory of other processes is mapped, perhaps from a GPU that this one does not see.
  if (driver().get_device(&other, device) != CUDA_SUCCESS) return;
  check_driver("cuDevicePrimaryCtxGetState", driver().primary_state(other, &flags, &is_used_here));
  if (is_used_here == 0) return;
  const PrimaryContext primary(other);
  run([&] {
    const CUresult result = driver().enable_access(primary, 0);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
  });
  reached_.push_back(device);
}

void SeparateContext::write(std::span<const WordToWrite> words) {
  for (const WordToWrite& each : words) {
    cudaPointerAttributes attributes{};
    FLASHOVERLAP_CUDA(cudaPointerGetAttributes(&attributes, each.word));
    reach(attributes.device);
  }
  run([&] {
    for (const WordToWrite& each : words) {
      const CUresult result = driver().set(address(each.word), each.value, 1, stream_);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

void SeparateContext::read(void* to, const void* from, std::size_t bytes) {
  run([&] { return driver().copy(to, address(from), bytes, stream_); });
}

}  // namespace flashoverlap
