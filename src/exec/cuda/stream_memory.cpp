#include "exec/cuda/stream_memory.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "cuda/driver.hpp"

namespace flashoverlap {
namespace {

/// Older drivers answer for the first form of the operations, newer ones only for those of 64 bits, which
/// come with those of 32.
bool has_operations(int ordinal) {
  static const auto get_device = driver_function<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000);
  static const auto get_attribute =
      driver_function<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute", 2000);
  CUdevice device = 0;
  check_driver("cuDeviceGet", get_device(&device, ordinal));
  return std::ranges::any_of(std::array{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
                                        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
                             [&](CUdevice_attribute attribute) {
                               int value = 0;
                               check_driver("cuDeviceGetAttribute", get_attribute(&value, attribute, device));
                               return value != 0;
                             });
}

/// For the driver.
std::vector<CUstreamBatchMemOpParams> described(std::span<const StreamOperation> operations) {
  std::vector<CUstreamBatchMemOpParams> described;
  described.reserve(operations.size());
  for (const StreamOperation& each : operations) {
    CUstreamBatchMemOpParams& operation = described.emplace_back();
    const auto address = reinterpret_cast<CUdeviceptr>(each.word);
    if (each.waits != 0) {
      operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      operation.waitValue.address = address;
      operation.waitValue.value = each.value;
      operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
      operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      operation.writeValue.address = address;
      operation.writeValue.value = each.value;
      operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
  }
  return described;
}

/// For the kernel.
StreamOperations listed(std::span<const StreamOperation> operations, const WaitBound& bound) {
  StreamOperations list{};
  list.count = static_cast<int>(operations.size());
  std::ranges::copy(operations, list.operations);
  list.expired = bound.expired;
  list.wait_limit_ns = static_cast<std::uint64_t>(bound.limit.count());
  return list;
}

}  // namespace

StreamMeans stream_means() {
  static const StreamMeans means = [] {
    int count = 0;
    FLASHOVERLAP_CUDA(cudaGetDeviceCount(&count));
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      if (!has_operations(ordinal)) return StreamMeans::kernels;
    }
    return StreamMeans::operations;
  }();
  return means;
}

void StreamMemoryBatch::wait_until_reached(const std::uint32_t* word, std::uint32_t target) {
  operations_.push_back({const_cast<std::uint32_t*>(word), target, 1});
}

void StreamMemoryBatch::write(std::uint32_t* word, std::uint32_t value) {
  operations_.push_back({word, value, 0});
}

/// Calls visit(part) for parts of at most as many operations as one call takes.
template <typename Visit>
void StreamMemoryBatch::for_each_call(const Visit& visit) const {
  constexpr std::size_t most_of_driver = 255;  // by its documentation
  const std::size_t most = means_ == StreamMeans::kernels ? most_stream_operations : most_of_driver;
  const std::span<const StreamOperation> all = operations_;
  for (std::size_t first = 0; first < all.size(); first += most)
    visit(all.subspan(first, std::min(most, all.size() - first)));
}

void StreamMemoryBatch::enqueue(cudaStream_t stream) const {
  static const auto batch = driver_function<PFN_cuStreamBatchMemOp_v11070>("cuStreamBatchMemOp", 11070);
  for_each_call([&](std::span<const StreamOperation> part) {
    if (means_ == StreamMeans::kernels) {
      FLASHOVERLAP_CUDA(operate(listed(part, bound_), stream));
      return;
    }
    std::vector<CUstreamBatchMemOpParams> operations = described(part);
    check_driver("cuStreamBatchMemOp",
                 batch(stream, static_cast<unsigned>(operations.size()), operations.data(), 0));
  });
}

}  // namespace flashoverlap
