#include "comm/peer_memory.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "comm/bounded_wait.hpp"
#include "comm/farewell.hpp"
#include "comm/give_up.hpp"
#include "comm/process_environment.hpp"
#include "comm/random_word.hpp"
#include "cuda/on_device.hpp"

namespace flashoverlap {

/// What a rank tells the others.
struct PeerMemory::Record {
  std::uint64_t host = 0;
  std::uint64_t process = 0;
  std::uint64_t allocation = 0;  ///< its number in the `Directory` of the process
  cudaIpcMemHandle_t handle{};
  std::int32_t shareable = 0;  ///< whether there is a handle
  std::array<char, 20> bus{};  ///< the GPU's place in the host, as its number differs between processes
  SharedWords::Name words{};   ///< rank 0 makes them; empty if the host does not give them
};

/// The beginning of every rank's allocation: what ranks exchange through NCCL until they share words. Memory
/// that is given out or taken back while another rank is in a collective may have to wait for that.
struct PeerMemory::Header {
  Record own;
  std::array<Record, max_ranks> all;
  std::uint32_t own_obstacle;
  std::array<std::uint32_t, max_ranks> obstacles;
};

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t block_bytes = 2 << 20;  // what CUDA IPC shares at a time
constexpr std::uint32_t farewell = 1U << 31;  // a rank closes its mappings, and comes to no more meetings
static_assert(std::size_t{2} * max_ranks <= SharedWords::count);

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::uint64_t process_identity() {
  static const std::uint64_t identity = random_word();
  return identity;
}

bool succeeded(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();  // or the next launch would be blamed for it
  return status == cudaSuccess;
}

/// What keeps `share` from sharing words; empty if nothing does.
template <typename Share>
std::string obstacle_to(const Share& share) {
  try {
    share();
    return "";
  } catch (const CommunicationError& error) {
    return error.what();
  }
}

/// Whether a rank has, by its word.
auto has_come_to(std::uint32_t meetings) {
  return [meetings](std::uint32_t word) { return (word & ~farewell) >= meetings; };
}

}  // namespace

class PeerMemory::Allocation {
 public:
  Allocation(std::size_t bytes, int device) : device_(device) {
    FLASHOVERLAP_CUDA(cudaMalloc(&memory_, bytes));
  }
  ~Allocation() {
    const OnDevice on(device_);  // the current one may be another rank's
    if (!abandoned_) cudaFree(memory_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  void* memory() const noexcept { return memory_; }
  /// Another process may still address it.
  void abandon() noexcept { abandoned_ = true; }

 private:
  void* memory_ = nullptr;
  int device_;
  bool abandoned_ = false;
};

/// Those of this process, where its ranks find each other's.
class PeerMemory::Directory {
 public:
  static Directory& of_process() {
    static Directory directory;
    return directory;
  }

  std::uint64_t add(const std::shared_ptr<Allocation>& allocation) {
    const std::scoped_lock held(mutex_);
    std::erase_if(allocations_, [](const auto& each) { return each.second.expired(); });
    allocations_.emplace(++last_, allocation);
    return last_;
  }

  /// Null where it is given back.
  std::shared_ptr<Allocation> find(std::uint64_t number) {
    const std::scoped_lock held(mutex_);
    const auto found = allocations_.find(number);
    return found == allocations_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Allocation>> allocations_;
  std::uint64_t last_ = 0;
};

/// Leaves memory allocated that other processes may have mapped, if there is any, unless it is told that none
/// has.
class PeerMemory::Abandoning {
 public:
  explicit Abandoning(Allocation* allocation) : allocation_(allocation) {}
  ~Abandoning() {
    if (allocation_ != nullptr) allocation_->abandon();
  }
  Abandoning(const Abandoning&) = delete;
  Abandoning& operator=(const Abandoning&) = delete;

  void dismiss() noexcept { allocation_ = nullptr; }

 private:
  Allocation* allocation_;
};

class PeerMemory::Mapping {
 public:
  Mapping(void* memory, int device) : memory_(memory), device_(device) {}
  ~Mapping() {
    const OnDevice on(device_);
    cudaIpcCloseMemHandle(memory_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* memory() const noexcept { return memory_; }

 private:
  void* memory_;
  int device_;
};

PeerMemory::PeerMemory(const Communicator& communicator, std::size_t bytes)
    : communicator_(communicator),
      own_(std::make_shared<Allocation>(round_up(round_up(sizeof(Header), alignment) + bytes, block_bytes),
                                        communicator.device())),
      neighbours_(static_cast<std::size_t>(communicator.ranks())),
      mappings_(neighbours_.size()) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % sizeof(float) == 0);
  const auto ranks = neighbours_.size();
  require(ranks <= max_ranks, "ranks", ranks,
          fmt::format("must be at most {} where they share memory", max_ranks));
  const auto self = static_cast<std::size_t>(communicator.rank());
  Header* const shared = header(communicator.rank());
  Record own{.host = host_identity(),
             .process = process_identity(),
             .allocation = Directory::of_process().add(own_)};
  FLASHOVERLAP_CUDA(cudaDeviceGetPCIBusId(own.bus.data(), own.bus.size(), communicator.device()));
  std::string obstacle;
  if (communicator.rank() == 0) {
    obstacle = obstacle_to([&] {
      words_ = std::make_unique<SharedWords>();
      own.words = words_->name();
    });
  }
  own.shareable = succeeded(cudaIpcGetMemHandle(&own.handle, own_->memory()));
  FLASHOVERLAP_CUDA(cudaMemsetAsync(shared, 0, round_up(sizeof(Header), alignment) + bytes, stream_));
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(&shared->own, &own, sizeof own, cudaMemcpyHostToDevice, stream_));
  Abandoning on_error(own_.get());  // peers may map it as soon as they have its handle
  communicator.all_gather(&shared->own, &shared->all, sizeof(Record) / sizeof(float), DataType::fp32,
                          stream_);
  await_gathered();
  std::vector<Record> records(ranks);
  FLASHOVERLAP_CUDA(
      cudaMemcpyAsync(records.data(), &shared->all, ranks * sizeof(Record), cudaMemcpyDeviceToHost, stream_));
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));

  const bool has_other_processes =
      std::ranges::any_of(records, [&](const Record& each) { return each.process != own.process; });
  if (!has_other_processes) on_error.dismiss();
  const auto ask_all = [&](auto ask) {
    for (std::size_t rank = 0; rank < ranks && obstacle.empty(); ++rank) {
      if (rank != self) obstacle = ask(static_cast<int>(rank), records[rank]);
    }
  };
  ask_all([&](int rank, const Record& theirs) { return find_obstacle(rank, own, theirs); });
  ask_all([&](int rank, const Record& theirs) { return open(rank, own, theirs); });
  if (obstacle.empty() && !words_) {
    const SharedWords::Name& name = records[0].words;
    obstacle = name.front() == '\0' ? "rank 0 cannot share memory of the host"
                                    : obstacle_to([&] { words_ = std::make_unique<SharedWords>(name); });
  }

  // A rank that still opens memory may have to wait for GPUs that are busy with a collective. One that cannot
  // open all does not come here.
  constexpr std::chrono::seconds patience{2};
  if (obstacle.empty()) {
    come();
    told_by_all(patience, has_come_to(meetings_), [] {});
  }

  // All go on, or none.
  const std::uint32_t own_obstacle = obstacle.empty() ? 0 : 1;
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(&shared->own_obstacle, &own_obstacle, sizeof own_obstacle,
                                    cudaMemcpyHostToDevice, stream_));
  communicator.all_gather(&shared->own_obstacle, &shared->obstacles, 1, DataType::fp32, stream_);
  await_gathered();
  std::vector<std::uint32_t> obstacles(ranks);
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(obstacles.data(), &shared->obstacles, ranks * sizeof(std::uint32_t),
                                    cudaMemcpyDeviceToHost, stream_));
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));
  if (words_) words_->forget_name();
  const auto hindered = std::ranges::find(obstacles, 1u) - obstacles.begin();
  if (hindered < std::ssize(obstacles)) {
    // Nobody frees what another process still maps.
    mappings_ = std::vector<std::unique_ptr<Mapping>>(ranks);
    communicator.all_gather(&shared->own_obstacle, &shared->obstacles, 1, DataType::fp32, stream_);
    await_gathered();
  }
  on_error.dismiss();
  require(own_obstacle == 0, "peer access", "none",
          fmt::format("is needed by strategies copy and store: rank {}: {}; p2p, signal and sequential do "
                      "without",
                      communicator.rank(), obstacle));
  require(hindered == std::ssize(obstacles), "peer access", "none",
          fmt::format("is needed by strategies copy and store, and rank {} lacks it; p2p, signal and "
                      "sequential do without",
                      hindered));
}

PeerMemory::~PeerMemory() {
  const auto is_mapped = [](const std::unique_ptr<Mapping>& mapping) { return mapping != nullptr; };
  if (std::ranges::none_of(mappings_, is_mapped)) return;
  // The others count this rank out before they can know that its mappings are closed, which take no time and
  // are not used any more.
  tell_meetings(meetings_ | farewell);
  const auto is_farewell = [](std::uint32_t word) { return (word & farewell) != 0; };
  if (told_by_all(farewell_of(communicator_).limit(), is_farewell, [] {})) return;
  own_->abandon();
  farewell_of(communicator_).note_missed(true);
}

PeerMemory::Header* PeerMemory::header(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  if (rank == communicator_.rank()) return static_cast<Header*>(own_->memory());
  if (neighbours_[index]) return static_cast<Header*>(neighbours_[index]->memory());
  return static_cast<Header*>(mappings_[index]->memory());
}

std::byte* PeerMemory::of(int rank) const {
  return reinterpret_cast<std::byte*>(header(rank)) + round_up(sizeof(Header), alignment);
}

std::string PeerMemory::find_obstacle(int rank, const Record& own, const Record& theirs) const {
  if (peer_access_is_disabled(environment_variable)) return "NCCL_P2P_DISABLE forbids it";
  if (own.host != theirs.host) return fmt::format("rank {} is on another host", rank);
  const bool same_process = own.process == theirs.process;
  if (!same_process && theirs.shareable == 0)
    return fmt::format("CUDA IPC cannot share the memory of rank {}", rank);
  if (own.bus == theirs.bus) {
    if (same_process)
      return fmt::format("rank {} has the same GPU, for which it needs its own process", rank);
    return "";
  }
  int device = 0;
  // Where a launcher shows each process its own GPU only, another one cannot be asked about.
  if (!succeeded(cudaDeviceGetByPCIBusId(&device, theirs.bus.data()))) return "";
  const auto supports = [&](cudaDeviceP2PAttr attribute) {
    int value = 0;
    return succeeded(cudaDeviceGetP2PAttribute(&value, attribute, communicator_.device(), device)) &&
           value != 0;
  };
  if (!supports(cudaDevP2PAttrAccessSupported))
    return fmt::format("GPU {} cannot address the memory of GPU {}", own.bus.data(), theirs.bus.data());
  if (!supports(cudaDevP2PAttrNativeAtomicSupported))
    return fmt::format("GPU {} cannot count in the memory of GPU {}", own.bus.data(), theirs.bus.data());
  return "";
}

std::string PeerMemory::open(int rank, const Record& own, const Record& theirs) {
  const auto index = static_cast<std::size_t>(rank);
  if (own.process != theirs.process) {
    void* memory = nullptr;
    const cudaError_t status = cudaIpcOpenMemHandle(&memory, theirs.handle, cudaIpcMemLazyEnablePeerAccess);
    if (!succeeded(status))
      return fmt::format("cudaIpcOpenMemHandle of rank {}'s memory: {}", rank, cudaGetErrorString(status));
    mappings_[index] = std::make_unique<Mapping>(memory, communicator_.device());
    return "";
  }
  int device = 0;
  FLASHOVERLAP_CUDA(cudaDeviceGetByPCIBusId(&device, theirs.bus.data()));
  const cudaError_t status = cudaDeviceEnablePeerAccess(device, 0);
  if (!succeeded(status) && status != cudaErrorPeerAccessAlreadyEnabled)
    return fmt::format("cudaDeviceEnablePeerAccess to GPU {}: {}", device, cudaGetErrorString(status));
  neighbours_[index] = Directory::of_process().find(theirs.allocation);
  return neighbours_[index] ? "" : fmt::format("rank {} has given up", rank);
}

void PeerMemory::await_gathered() const {
  await_stream(stream_, communicator_, communicator_.options().wait_limit,
               "not all ranks have shared their memory");
}

void PeerMemory::come() noexcept { tell_meetings(++meetings_); }

void PeerMemory::tell_meetings(std::uint32_t word) noexcept {
  (*words_)[static_cast<std::size_t>(communicator_.rank())] = word;
}

template <typename Predicate, typename Check>
bool PeerMemory::told_by_all(std::chrono::milliseconds limit, Predicate holds, Check check) const {
  return holds_within(limit, [&] {
    bool are_told = true;
    for (std::size_t rank = 0; rank < neighbours_.size(); ++rank) are_told &= holds((*words_)[rank]);
    if (!are_told) check();
    return are_told;
  });
}

void PeerMemory::meet() {
  come();
  if (told_by_all(communicator_.options().wait_limit, has_come_to(meetings_),
                  [this] { communicator_.throw_if_failed(); })) {
    farewell_of(communicator_).note_missed(false);
    return;
  }
  give_up(communicator_, CommunicationError(fmt::format("rank {} of {}: not all ranks have come in time",
                                                        communicator_.rank(), communicator_.ranks())));
}

void PeerMemory::tell_failure() noexcept {
  (*words_)[static_cast<std::size_t>(max_ranks + communicator_.rank())] = 1;
}

std::optional<int> PeerMemory::failed_peer() const noexcept {
  for (int rank = 0; rank < communicator_.ranks(); ++rank) {
    if (rank != communicator_.rank() && (*words_)[static_cast<std::size_t>(max_ranks + rank)] != 0)
      return rank;
  }
  return std::nullopt;
}

}  // namespace flashoverlap
