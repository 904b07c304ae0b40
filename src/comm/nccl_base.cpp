#include "comm/nccl_base.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "comm/background.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

ncclConfig_t make_config(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100);
}

/// The loader ends a process that calls what an older library lacks, so that one is refused at once.
void check_version(const NcclEnd& end) {
  int loaded = 0;
  check_nccl(end, "ncclGetVersion", ncclGetVersion(&loaded));
  if (loaded < NCCL_VERSION_CODE) {
    fail(end, "NCCL",
         fmt::format("{} is loaded, but must be {} or newer, as what was compiled against",
                     version_text(loaded), version_text(NCCL_VERSION_CODE)));
  }
}

/// Not on the calling thread, as NCCL sets no limit to how long these calls take. Whether it ended in time.
template <typename End>
bool end_in_background(const NcclEnd& end, std::chrono::milliseconds limit, End end_it) noexcept {
  try {
    return in_background([device = end.device, end_it = std::move(end_it)] {
             if (cudaSetDevice(device) == cudaSuccess) end_it();
           }).wait_for(limit) == std::future_status::ready;
  } catch (const std::exception&) {
    return false;  // No thread could be started: the process is past caring for a leak.
  }
}

}  // namespace

NcclBase::NcclBase(const ncclUniqueId& id, const NcclEnd& end)
    : NcclBase(end, std::make_shared<Farewell>(end.wait_limit)) {
  check_version(end);
  constexpr std::string_view call = "ncclCommInitRankConfig";
  ncclConfig_t config = make_config(false);
  const ncclResult_t result = ncclCommInitRankConfig(&base_, end.ranks, id, end.rank, &config);
  try {
    if (result != ncclInProgress) check_nccl(end, call, result);
    await(call);
  } catch (...) {
    abandon();
    throw;
  }
}

NcclBase::~NcclBase() { destroy(base_); }

std::unique_ptr<NcclBase> NcclBase::split(int color) {
  std::unique_ptr<NcclBase> part(new NcclBase(end_, farewell_));
  part->base_ = split_off(color, make_config(false));
  check_nccl(end_, "ncclCommUserRank", ncclCommUserRank(part->base_, &part->end_.rank));
  check_nccl(end_, "ncclCommCount", ncclCommCount(part->base_, &part->end_.ranks));
  return part;
}

ncclComm_t NcclBase::split_for_transfers(int thread_blocks) {
  ncclConfig_t config = make_config(true);
  if (thread_blocks > 0) {
    config.maxCTAs = thread_blocks;
    config.minCTAs = thread_blocks;  // of kernels for shared memory NCCL would take 7 to 9, which are slower
    // A cluster needs free multiprocessors next to each other, and what a GEMM leaves free lies anywhere.
    config.cgaClusterSize = 1;
  }
  return split_off(0, config);
}

ncclComm_t NcclBase::split_off(int color, ncclConfig_t config) {
  constexpr std::string_view call = "ncclCommSplit";
  if (base_ == nullptr) fail(end_, call, "an earlier split failed");
  part_ = std::make_shared<ncclComm_t>(nullptr);
  try {
    const ncclResult_t result = ncclCommSplit(base_, color, end_.rank, part_.get(), &config);
    if (result != ncclInProgress) check_nccl(end_, call, result);
    await(call);
  } catch (...) {
    abandon();
    throw;
  }
  return *std::exchange(part_, nullptr);
}

void NcclBase::await(std::string_view call) {
  const auto deadline = std::chrono::steady_clock::now() + end_.wait_limit;
  for (;;) {
    ncclResult_t state = ncclInProgress;
    check_nccl(end_, "ncclCommGetAsyncError", ncclCommGetAsyncError(base_, &state));
    if (state != ncclInProgress) return check_nccl(end_, call, state);
    if (std::chrono::steady_clock::now() >= deadline) {
      fail(end_, call, fmt::format("not all ranks have joined within {} ms", end_.wait_limit.count()));
    }
    std::this_thread::sleep_for(1ms);
  }
}

void NcclBase::abandon() noexcept {
  ncclComm_t base = std::exchange(base_, nullptr);
  if (base == nullptr) return;
  end_in_background(end_, end_.wait_limit, [base, part = std::move(part_)] { ncclCommAbort(base); });
}

void NcclBase::destroy(ncclComm_t communicator) noexcept {
  if (communicator == nullptr) return;
  const bool ended =
      end_in_background(end_, farewell_->limit(), [communicator] { ncclCommDestroy(communicator); });
  if (!ended) farewell_->note_missed(true);
}

}  // namespace flashoverlap
