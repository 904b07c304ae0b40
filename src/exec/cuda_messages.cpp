#include "exec/cuda_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "exec/message_kernels.hpp"
#include "exec/plan_needs.hpp"

namespace flashoverlap {

namespace {

constexpr int default_copy_blocks = 8;

std::uint32_t target_of(const Plan& plan, std::int32_t counter) {
  return static_cast<std::uint32_t>(plan.counters[static_cast<std::size_t>(counter)].target);
}

}  // namespace

CudaMessages::CudaMessages(const std::vector<Plan>& plans, std::vector<Message> messages,
                           const Communicator& alone, const Communicator& beside_gemm,
                           const PlanMemory& memory, bool record_times)
    : plan_(plans[static_cast<std::size_t>(alone.rank())]),
      messages_(std::move(messages)),
      alone_(alone),
      beside_gemm_(beside_gemm),
      memory_(memory),
      counters_(memory.counters(alone.rank())),
      awaited_by_tiles_(plan_.counters.size(), false) {
  resolve_raises(plans);
  if (std::ranges::any_of(messages_, [&](const Message& message) { return goes_on_beside(plan_, message); }))
    beside_ = std::make_unique<Beside>();
  for (const Tile& tile : plan_.tiles) {
    for (const std::int32_t counter : {tile.start_wait, tile.store_wait}) {
      if (counter != none) awaited_by_tiles_[static_cast<std::size_t>(counter)] = true;
    }
  }
  if (record_times) times_ = std::vector<Times>(messages_.size());
  FLASHOVERLAP_CUDA(load_message_kernels());
}

// A counter that is raised in order goes through the same values in every run, so they can be written, which
// needs no multiprocessor.
void CudaMessages::resolve_raises(const std::vector<Plan>& plans) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> raised;
  for (const Message& message : messages_) {
    std::vector<ResolvedRaise>& resolved = raises_.emplace_back();
    for (const Raise& raise : message.raises) {
      const std::uint32_t value = ++raised[{raise.rank, raise.counter}];
      resolved.push_back({memory_.counters(raise.rank) + raise.counter,
                          raised_in_order(plans, plan_.rank, raise) ? value : 0});
    }
  }
}

void CudaMessages::begin() {
  if (++runs_ == 0) runs_ = 1;
  pending_ = {};
  pending_.write(words_.device(done_word), 0);
  pending_.write(words_.device(running_word), runs_);
}

void CudaMessages::enqueue(std::size_t first, std::size_t last, const Buffers& own, cudaStream_t stream,
                           cudaEvent_t computed) {
  for (std::size_t index = first; index < last; ++index) {
    const Message& message = messages_[index];
    if (message.after_tiles && computed != nullptr) {
      flush(stream);
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, computed));
    }
    add_waits(message);
    // What follows a message waits for the next one's counters in the same call: nothing but that wait lies
    // between a signal and its transfer.
    flush(stream);
    if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].signalled, stream));
    if (goes_on_beside(plan_, message)) {
      copy_beside(index, own, stream);
    } else {
      transfer(message, own, stream);
      if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].done, stream));
      raise(index, pending_, stream);
    }
    pending_.write(words_.device(done_word), static_cast<std::uint32_t>(index) + 1);
  }
}

void CudaMessages::copy_beside(std::size_t index, const Buffers& own, cudaStream_t stream) const {
  FLASHOVERLAP_CUDA(cudaEventRecord(beside_->begun, stream));
  FLASHOVERLAP_CUDA(cudaStreamWaitEvent(beside_->copies, beside_->begun));
  transfer(messages_[index], own, beside_->copies);
  if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].done, beside_->copies));
  FLASHOVERLAP_CUDA(cudaEventRecord(beside_->copied, beside_->copies));
  FLASHOVERLAP_CUDA(cudaStreamWaitEvent(beside_->raises, beside_->copied));
  StreamMemoryBatch raises;
  raise(index, raises, beside_->raises);
  raises.enqueue(beside_->raises);
}

void CudaMessages::add_waits(const Message& message) {
  for (const Wait& wait : message.waits) {
    const bool passed = message.after_tiles && awaited_by_tiles_[static_cast<std::size_t>(wait.counter)];
    if (!passed) pending_.wait_until_reached(counters_ + wait.counter, target_of(plan_, wait.counter));
  }
}

/// Gathered in `batch`, which raises that take a kernel are enqueued behind.
void CudaMessages::raise(std::size_t index, StreamMemoryBatch& batch, cudaStream_t stream) const {
  // Before the raises: whoever sees them may raise these counters again.
  for (const Wait& wait : messages_[index].waits) {
    if (wait.reset) batch.write(counters_ + wait.counter, 0);
  }
  RaisedCounters shared{};
  const auto add_to_shared = [&] {
    if (shared.count > 0) FLASHOVERLAP_CUDA(raise_counters(shared, stream));
    shared = {};
  };
  for (const ResolvedRaise& raise : raises_[index]) {
    if (raise.value > 0) batch.write(raise.counter, raise.value);
  }
  for (const ResolvedRaise& raise : raises_[index]) {
    if (raise.value > 0) continue;
    batch.enqueue(stream);
    batch = {};
    shared.counters[shared.count++] = raise.counter;
    if (shared.count == most_raises) add_to_shared();
  }
  add_to_shared();
}

void CudaMessages::flush(cudaStream_t stream) {
  pending_.enqueue(stream);
  pending_ = {};
}

void CudaMessages::end(cudaStream_t stream) {
  if (beside_) {
    flush(stream);
    FLASHOVERLAP_CUDA(cudaEventRecord(beside_->raised, beside_->raises));
    FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, beside_->raised));
  }
  pending_.write(words_.device(running_word), 0);
  flush(stream);
}

void CudaMessages::rehearse(const Buffers& own, cudaStream_t stream) const {
  for (const Message& message : messages_) transfer(message, own, stream);
}

void* CudaMessages::at(const Buffers& own, const Region& region, int rank) const {
  const std::int64_t row_bytes = plan_.buffer(region.buffer).cols * size_of(plan_.problem.data_type);
  void* const buffer =
      rank == plan_.rank ? own[static_cast<std::size_t>(region.buffer)] : memory_.buffer(rank, region.buffer);
  return static_cast<std::byte*>(buffer) + region.row * row_bytes;
}

std::int64_t CudaMessages::count(const Region& region) const {
  return region.rows * plan_.buffer(region.buffer).cols;
}

std::vector<Communicator::Part> CudaMessages::parts(const std::vector<Part>& parts,
                                                    const Buffers& own) const {
  std::vector<Communicator::Part> resolved;
  resolved.reserve(parts.size());
  for (const Part& part : parts)
    resolved.push_back({part.peer, at(own, part.region, plan_.rank), count(part.region)});
  return resolved;
}

/// For a collective, which is at the same place in the lists of all ranks.
const Communicator& CudaMessages::communicator_for(const Message& message) const {
  const bool is_last = &message == &messages_.back() && waits_for_tiles(plan_, message);
  const bool is_fast =
      is_fast_enough(memory_.is_shared(message.source.buffer), plan_.schedule.comm_multiprocessors);
  return is_last && !is_fast ? alone_ : beside_gemm_;
}

void CudaMessages::transfer(const Message& message, const Buffers& own, cudaStream_t stream) const {
  const DataType data_type = plan_.problem.data_type;
  const auto source = [&] { return at(own, message.source, plan_.rank); };
  const auto destination = [&] { return at(own, message.destination, plan_.rank); };
  const auto bytes = [&] { return static_cast<std::size_t>(count(message.source) * size_of(data_type)); };
  switch (message.kind) {
    case MessageKind::all_reduce:
      communicator_for(message).all_reduce(source(), count(message.source), data_type, stream);
      break;
    case MessageKind::reduce_scatter:
      communicator_for(message).reduce_scatter(source(), destination(), count(message.destination), data_type,
                                               stream);
      break;
    case MessageKind::all_gather:
      beside_gemm_.all_gather(source(), destination(), count(message.source), data_type, stream);
      break;
    case MessageKind::exchange:
      beside_gemm_.exchange(parts(message.sends, own), parts(message.receives, own), data_type, stream);
      break;
    case MessageKind::copy:
      FLASHOVERLAP_CUDA(cudaMemcpyAsync(at(own, message.destination, message.peer), source(), bytes(),
                                        cudaMemcpyDeviceToDevice, stream));
      break;
    case MessageKind::store: {
      const int blocks = plan_.schedule.comm_multiprocessors;
      FLASHOVERLAP_CUDA(copy_by_blocks(at(own, message.destination, message.peer), source(), bytes(),
                                       blocks > 0 ? blocks : default_copy_blocks, stream));
      break;
    }
    case MessageKind::signal:
      break;
  }
}

std::exception_ptr CudaMessages::report() const {
  std::vector<std::uint32_t> values(plan_.counters.size());
  const auto bytes = values.size() * sizeof(std::uint32_t);
  if (cudaMemcpyAsync(values.data(), counters_, bytes, cudaMemcpyDeviceToHost, side_) != cudaSuccess ||
      cudaStreamSynchronize(side_) != cudaSuccess) {
    return std::make_exception_ptr(CudaError(fmt::format("rank {}: the GPU does not answer: {}", plan_.rank,
                                                         cudaGetErrorString(cudaGetLastError()))));
  }
  const std::uint32_t done = words_.read(done_word);
  if (done >= messages_.size()) {
    return std::make_exception_ptr(
        WaitExpired(fmt::format("rank {}: all messages of a run are done but the run is not{}", plan_.rank,
                                missing_for_tiles(values))));
  }
  const Message& current = messages_[done];
  const std::string where = fmt::format("rank {} of {}: message {} ({} of group {})", plan_.rank,
                                        plan_.problem.ranks, done, name(current.kind), current.group);
  std::string counters;
  for (const Wait& wait : current.waits) {
    const std::uint32_t value = values[static_cast<std::size_t>(wait.counter)];
    const std::uint32_t target = target_of(plan_, wait.counter);
    const std::string counter = describe_counter(plan_, wait.counter);
    if (value < target) {
      return std::make_exception_ptr(
          WaitExpired(fmt::format("{} waited for {} for too long: expected {}, is {}{}", where, counter,
                                  target, value, missing_for_tiles(values))));
    }
    counters += fmt::format("; {} is {} of {}", counter, value, target);
  }
  return std::make_exception_ptr(
      CommunicationError(fmt::format("{} was not answered by every rank in time{}", where, counters)));
}

/// "; tiles wait for counter 5 (arrival, group 0), which is 1 of 2": the first that they wait for.
std::string CudaMessages::missing_for_tiles(const std::vector<std::uint32_t>& values) const {
  for (const Tile& tile : plan_.tiles) {
    for (const std::int32_t counter : {tile.start_wait, tile.store_wait}) {
      if (counter == none) continue;
      const std::uint32_t value = values[static_cast<std::size_t>(counter)];
      if (value < target_of(plan_, counter)) {
        return fmt::format("; tiles wait for {}, which is {} of {}", describe_counter(plan_, counter), value,
                           target_of(plan_, counter));
      }
    }
  }
  return "";
}

void CudaMessages::release() const noexcept {
  try {
    StreamMemoryBatch batch;
    for (std::size_t counter = 0; counter < plan_.counters.size(); ++counter)
      batch.write(counters_ + counter, static_cast<std::uint32_t>(plan_.counters[counter].target));
    batch.enqueue(side_);
  } catch (const Error&) {
    // The GPU is gone; there is nothing to release.
  }
}

std::vector<MessageTimes> CudaMessages::times(const std::function<double(cudaEvent_t)>& since_begin) const {
  std::vector<MessageTimes> times;
  for (const Times& each : times_) times.push_back({since_begin(each.signalled), since_begin(each.done)});
  return times;
}

}  // namespace flashoverlap
