#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/background.hpp"
#include "comm/farewell.hpp"
#include "comm/give_up.hpp"
#include "comm/nccl_base.hpp"
#include "comm/nccl_error.hpp"
#include "comm/nccl_memory.hpp"
#include "comm/process_environment.hpp"
#include "cuda/on_device.hpp"
#include "flashoverlap/communicator.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

/// An enqueueing call takes microseconds; one that takes this long is held up by a lost rank.
constexpr auto longest_call = 100ms;

ncclDataType_t to_nccl(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return ncclBfloat16;
    case DataType::fp16: return ncclFloat16;
    case DataType::fp32: return ncclFloat32;
  }
  throw InvalidArgument("data_type", static_cast<int>(data_type), "must be bf16, fp16 or fp32");
}

/// NCCL learns where its ranks meet from NCCL_COMM_ID alone. Left set, it would send every communicator that
/// anyone in this process makes later to the same place.
class MeetingPoint {
 public:
  explicit MeetingPoint(const std::string& root) : set_here_(!environment_variable(name)) {
    if (set_here_) setenv(name, root.c_str(), 1);
  }
  ~MeetingPoint() {
    if (set_here_) unsetenv(name);
  }
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

 private:
  static constexpr const char* name = "NCCL_COMM_ID";
  const bool set_here_;
};

std::string new_key() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) {
    throw CommunicationError(
        fmt::format("ncclGetUniqueId: {}: {}", ncclGetErrorString(result), ncclGetLastError(nullptr)));
  }
  return std::string(id.internal, sizeof id.internal);
}

void use_gpu(const ProcessEnvironment& environment) {
  int devices = 0;
  FLASHOVERLAP_CUDA(cudaGetDeviceCount(&devices));
  FLASHOVERLAP_CUDA(cudaSetDevice(choose_gpu(environment, devices)));
}

using Part = Communicator::Part;

void check_parts(const NcclEnd& end, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    require(part.peer >= 0 && part.peer < end.ranks, "peer", part.peer,
            fmt::format("must be between 0 and {}", end.ranks - 1));
    require(part.count >= 0, "count", part.count, "must be at least 0");
  }
}

struct Copy {
  const void* source;
  void* destination;
  std::size_t bytes;
};

/// The parts from this rank to itself.
std::vector<Copy> own_copies(const NcclEnd& end, const std::vector<Part>& sends,
                             const std::vector<Part>& receives, DataType data_type) {
  std::vector<Copy> copies;
  const auto stays = [&](const Part& part) { return part.peer == end.rank; };
  auto receive = std::ranges::find_if(receives, stays);
  for (const Part& send : sends) {
    if (!stays(send)) continue;
    require(receive != receives.end() && receive->count == send.count, "count sent to this rank itself",
            send.count, "must be that of the receive in the same place");
    const auto bytes = static_cast<std::size_t>(send.count * size_of(data_type));
    if (bytes > 0) copies.push_back({send.data, receive->data, bytes});
    receive = std::find_if(receive + 1, receives.end(), stays);
  }
  require(receive == receives.end(), "receives", receives.size(),
          "must have as many parts from this rank itself as the sends");
  return copies;
}

std::shared_ptr<NcclBase> join(const std::string& key, int rank, int ranks,
                               const CommunicatorOptions& options) {
  ncclUniqueId id;
  require(key.size() == sizeof id.internal, "size of key", key.size(), "must come from make_key");
  require(ranks >= 1, "ranks", ranks, "must be at least 1");
  require(rank >= 0 && rank < ranks, "rank", rank, fmt::format("must be between 0 and {}", ranks - 1));
  require(options.wait_limit > 0ms && options.wait_limit <= 24h, "wait_limit", options.wait_limit.count(),
          "must be more than 0 ms and at most a day");
  // It would override which calls of NCCL may wait for other ranks.
  const auto blocking = environment_variable("NCCL_COMM_BLOCKING");
  require(!blocking, "NCCL_COMM_BLOCKING", blocking.value_or(""), "must not be set");
  std::memcpy(id.internal, key.data(), key.size());
  NcclEnd end{.rank = rank, .ranks = ranks, .wait_limit = options.wait_limit};
  FLASHOVERLAP_CUDA(cudaGetDevice(&end.device));
  return std::make_shared<NcclBase>(id, end);
}

}  // namespace

struct Communicator::State {
  State(std::shared_ptr<NcclBase> the_base, int the_thread_blocks, const CommunicatorOptions& the_options)
      : base(std::move(the_base)),
        end(base->end()),
        thread_blocks(the_thread_blocks),
        options(the_options),
        transfers(base->split_for_transfers(thread_blocks)) {}
  ~State() { base->destroy(transfers); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<NcclBase> base;
  const NcclEnd end;
  const int thread_blocks;
  const CommunicatorOptions options;
  const ncclComm_t transfers;

  std::timed_mutex calling;  // held by whoever is inside NCCL
  std::mutex family;         // guards what was made from this, `watch` and `reason`
  std::map<int, std::shared_ptr<State>> capped;
  std::vector<std::weak_ptr<State>> groups;
  std::weak_ptr<RunWatch> watch;
  std::string reason;
  std::atomic<bool> aborted = false;

  template <typename Enqueue>
  void call(std::string_view name, Enqueue enqueue) {
    throw_if_aborted();
    const std::lock_guard held(calling);
    throw_if_aborted();
    const ncclResult_t result = enqueue();
    throw_if_aborted();  // which is then why NCCL returned
    check_nccl(end, name, result);
  }

  void throw_if_aborted() {
    if (!aborted) return;
    const std::lock_guard held(family);
    throw CommunicationError(reason);
  }

  /// Marks this and everything made from it as aborted, and lists what was not already.
  static void mark(const std::shared_ptr<State>& state, const std::string& reason,
                   std::vector<std::shared_ptr<State>>& marked) {
    const std::lock_guard held(state->family);
    for (const auto& [thread_blocks, child] : state->capped) mark(child, reason, marked);
    for (const auto& group : state->groups) {
      if (const auto child = group.lock()) mark(child, reason, marked);
    }
    if (state->aborted) return;
    state->reason = reason;
    state->aborted = true;
    marked.push_back(state);
  }

  /// Once marked: ends what is enqueued. Frees nothing, as a call that is held up still uses it.
  void revoke() {
    if (calling.try_lock_for(longest_call)) calling.unlock();  // whoever calls from now on finds the mark
    if (cudaSetDevice(end.device) == cudaSuccess) ncclCommRevoke(transfers, NCCL_REVOKE_DEFAULT);
  }
};

Communicator::Communicator(const std::string& key, int rank, int ranks, const CommunicatorOptions& options)
    : Communicator(std::make_shared<State>(join(key, rank, ranks, options), 0, options)) {}

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

Communicator Communicator::from_environment(const CommunicatorOptions& options) {
  const ProcessEnvironment environment = read_process_environment(environment_variable);
  use_gpu(environment);
  const MeetingPoint meeting_point(environment.root);
  return Communicator(new_key(), environment.rank, environment.ranks, options);
}

std::string Communicator::make_key() {
  const auto meeting_point = environment_variable("NCCL_COMM_ID");
  require(!meeting_point, "NCCL_COMM_ID", meeting_point.value_or(""),
          "must not be set where ranks meet by a key, as NCCL takes that address for every key");
  return new_key();
}

std::shared_ptr<RunWatch> run_watch(const Communicator& communicator) {
  Communicator::State& state = *communicator.state_;
  const std::lock_guard held(state.family);
  std::shared_ptr<RunWatch> watch = state.watch.lock();
  if (watch) return watch;
  watch = std::make_shared<RunWatch>([device = state.end.device] { use_in_background(device); });
  state.watch = watch;
  return watch;
}

Farewell& farewell_of(const Communicator& communicator) { return communicator.state_->base->farewell(); }

Communicator Communicator::split(int color) const {
  require(color >= 0, "color", color, "must be at least 0");
  state_->throw_if_aborted();
  auto base = state_->base->split(color);
  CommunicatorOptions options = state_->options;
  if (base->end().ranks < ranks()) options.concurrent_collectives = true;
  const auto group = std::make_shared<State>(std::move(base), 0, options);
  {
    const std::lock_guard held(state_->family);
    state_->groups.push_back(group);
  }
  state_->throw_if_aborted();  // an abort meanwhile did not know of the group
  return Communicator(group);
}

Communicator Communicator::capped(int thread_blocks) const {
  require(thread_blocks >= 0, "thread_blocks", thread_blocks, "must be at least 0");
  state_->throw_if_aborted();
  if (thread_blocks == state_->thread_blocks) return *this;
  {
    const std::lock_guard held(state_->family);
    if (const auto found = state_->capped.find(thread_blocks); found != state_->capped.end()) {
      return Communicator(found->second);
    }
  }
  const auto made = std::make_shared<State>(state_->base, thread_blocks, state_->options);
  {
    const std::lock_guard held(state_->family);
    state_->capped.emplace(thread_blocks, made);
  }
  state_->throw_if_aborted();
  return Communicator(made);
}

CollectiveMemory Communicator::allocate(std::size_t bytes) const {
  if (bytes == 0) return {};
  void* memory = nullptr;
  state_->call("ncclMemAlloc", [&] { return ncclMemAlloc(&memory, bytes); });
  return share({.data = {memory, [](void* allocated) { ncclMemFree(allocated); }}, .bytes = bytes});
}

CollectiveMemory Communicator::share(const CollectiveMemory& memory) const {
  if (memory.data == nullptr || state_->thread_blocks == 0) return memory;
  const auto release = [state = state_](NcclWindow* window) {
    const std::unique_lock held(state->calling, longest_call);
    delete window;
  };
  const std::shared_ptr<NcclWindow> window(new NcclWindow(state_->transfers, memory.data), release);
  state_->call("ncclCommWindowRegister", [&] { return window->open(memory.bytes); });
  return {{window, memory.data.get()}, memory.bytes, window->is_open()};
}

int Communicator::rank() const noexcept { return state_->end.rank; }
int Communicator::ranks() const noexcept { return state_->end.ranks; }
int Communicator::device() const noexcept { return state_->end.device; }
const CommunicatorOptions& Communicator::options() const noexcept { return state_->options; }

void Communicator::all_reduce(void* data, std::int64_t count, DataType data_type, Stream stream) const {
  require(count >= 0, "count", count, "must be at least 0");
  state_->call("ncclAllReduce", [&] {
    if (count == 0) return ncclSuccess;
    return ncclAllReduce(data, data, static_cast<std::size_t>(count), to_nccl(data_type), ncclSum,
                         state_->transfers, stream);
  });
}

void Communicator::reduce_scatter(const void* source, void* destination, std::int64_t count,
                                  DataType data_type, Stream stream) const {
  require(count >= 0, "count", count, "must be at least 0");
  state_->call("ncclReduceScatter", [&] {
    if (count == 0) return ncclSuccess;
    return ncclReduceScatter(source, destination, static_cast<std::size_t>(count), to_nccl(data_type),
                             ncclSum, state_->transfers, stream);
  });
}

void Communicator::all_gather(const void* source, void* destination, std::int64_t count, DataType data_type,
                              Stream stream) const {
  require(count >= 0, "count", count, "must be at least 0");
  state_->call("ncclAllGather", [&] {
    if (count == 0) return ncclSuccess;
    return ncclAllGather(source, destination, static_cast<std::size_t>(count), to_nccl(data_type),
                         state_->transfers, stream);
  });
}

void Communicator::exchange(const std::vector<Part>& sends, const std::vector<Part>& receives,
                            DataType data_type, Stream stream) const {
  const NcclEnd& end = state_->end;
  check_parts(end, sends);
  check_parts(end, receives);
  const std::vector<Copy> copies = own_copies(end, sends, receives, data_type);
  const ncclDataType_t type = to_nccl(data_type);
  const auto travels = [&](const Part& part) { return part.peer != end.rank && part.count > 0; };
  state_->call("ncclSend, ncclRecv", [&] {
    // NCCL wants every group ended, also one in which a call has failed.
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (const Part& part : sends) {
      if (result != ncclSuccess || !travels(part)) continue;
      result = ncclSend(part.data, static_cast<std::size_t>(part.count), type, part.peer, state_->transfers,
                        stream);
    }
    for (const Part& part : receives) {
      if (result != ncclSuccess || !travels(part)) continue;
      result = ncclRecv(part.data, static_cast<std::size_t>(part.count), type, part.peer, state_->transfers,
                        stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  });
  for (const Copy& copy : copies) {
    FLASHOVERLAP_CUDA(
        cudaMemcpyAsync(copy.destination, copy.source, copy.bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

void Communicator::throw_if_failed() const {
  state_->throw_if_aborted();
  const NcclEnd& end = state_->end;
  ncclResult_t noticed = ncclSuccess;
  check_nccl(end, "ncclCommGetAsyncError", ncclCommGetAsyncError(state_->transfers, &noticed));
  if (noticed != ncclInProgress) check_nccl(end, "noticed by NCCL", noticed);
}

void Communicator::abort(const std::string& reason) const noexcept {
  try {
    std::vector<std::shared_ptr<State>> marked;
    State::mark(state_, reason, marked);
    // All at once: a transfer of one may be queued after a transfer of another.
    std::vector<std::future<void>> ended;
    ended.reserve(marked.size());
    for (const auto& state : marked) ended.push_back(in_background([state] { state->revoke(); }));
    const auto deadline = std::chrono::steady_clock::now() + state_->options.wait_limit;
    for (const auto& revoked : ended) revoked.wait_until(deadline);
  } catch (const std::exception&) {
    // Neither memory nor threads are left: what is marked throws all the same.
  }
}

}  // namespace flashoverlap
