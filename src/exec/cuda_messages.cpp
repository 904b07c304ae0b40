#include "exec/cuda_messages.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "exec/stream_memory.hpp"

namespace flashoverlap {

CudaMessages::CudaMessages(const Plan& plan, const Communicator& alone, const Communicator& beside_gemm,
                           std::uint32_t* counters, bool computed_before, bool record_times)
    : plan_(plan),
      alone_(alone),
      beside_gemm_(beside_gemm),
      counters_(counters),
      computed_before_(computed_before) {
  check_supported();
  if (record_times) times_ = std::vector<Times>(plan.messages.size());
}

void CudaMessages::check_supported() const {
  for (const Message& message : plan_.messages) {
    const bool peer_memory = message.kind == MessageKind::copy || message.kind == MessageKind::store;
    bool raises_far = false;
    for (const Raise& raise : message.raises) {
      raises_far |=
          raise.rank != plan_.rank || plan_.counters[static_cast<std::size_t>(raise.counter)].target != 1;
    }
    require(!peer_memory && !raises_far, "strategy", name(plan_.schedule.strategy),
            "needs memory that peers address, which this executor does not have");
  }
  for (const Tile& tile : plan_.tiles) {
    require(tile.rank == plan_.rank, "strategy", name(plan_.schedule.strategy),
            "stores tiles to peers, whose memory this executor cannot address");
  }
}

void CudaMessages::begin(cudaStream_t stream) {
  if (++runs_ == 0) runs_ = 1;
  StreamMemoryBatch batch;
  batch.write(words_.device(done_word), 0);
  batch.write(words_.device(running_word), runs_);
  batch.enqueue(stream);
}

void CudaMessages::enqueue(const Buffers& buffers, cudaStream_t stream, cudaEvent_t computed) const {
  // What follows a message waits for the next one's counters in the same call: nothing but that wait lies
  // between a signal and its transfer.
  StreamMemoryBatch batch;
  for (std::size_t index = 0; index < plan_.messages.size(); ++index) {
    const Message& message = plan_.messages[index];
    if (message.after_tiles) {
      batch.enqueue(stream);
      batch = {};
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, computed));
    }
    for (const Wait& wait : message.waits) {
      const std::int32_t target = plan_.counters[static_cast<std::size_t>(wait.counter)].target;
      batch.wait_until_reached(counters_ + wait.counter, static_cast<std::uint32_t>(target));
    }
    batch.enqueue(stream);
    batch = {};
    if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].signalled, stream));
    transfer(message, buffers, stream);
    if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].done, stream));
    for (const Raise& raise : message.raises) batch.write(counters_ + raise.counter, 1);
    for (const Wait& wait : message.waits) {
      if (wait.reset) batch.write(counters_ + wait.counter, 0);
    }
    batch.write(words_.device(done_word), static_cast<std::uint32_t>(index) + 1);
  }
  batch.write(words_.device(running_word), 0);
  batch.enqueue(stream);
}

void CudaMessages::enqueue_after_gemm(const Buffers& buffers, cudaStream_t stream) const {
  for (std::size_t index = 0; index < plan_.messages.size(); ++index) {
    if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].signalled, stream));
    transfer(plan_.messages[index], buffers, stream);
    if (!times_.empty()) FLASHOVERLAP_CUDA(cudaEventRecord(times_[index].done, stream));
  }
  StreamMemoryBatch batch;
  batch.write(words_.device(running_word), 0);
  batch.enqueue(stream);
}

void* CudaMessages::at(const Buffers& buffers, const Region& region) const {
  const std::int64_t row_bytes = plan_.buffer(region.buffer).cols * size_of(plan_.problem.data_type);
  return static_cast<std::byte*>(buffers[static_cast<std::size_t>(region.buffer)]) + region.row * row_bytes;
}

std::int64_t CudaMessages::count(const Region& region) const {
  return region.rows * plan_.buffer(region.buffer).cols;
}

std::vector<Communicator::Part> CudaMessages::parts(const std::vector<Part>& parts,
                                                    const Buffers& buffers) const {
  std::vector<Communicator::Part> resolved;
  resolved.reserve(parts.size());
  for (const Part& part : parts)
    resolved.push_back({part.peer, at(buffers, part.region), count(part.region)});
  return resolved;
}

bool CudaMessages::follows_last_tiles(const Message& message) const {
  return &message == &plan_.messages.back() && std::ranges::any_of(message.waits, [&](const Wait& wait) {
    return plan_.counters[static_cast<std::size_t>(wait.counter)].role == CounterRole::tiles;
  });
}

void CudaMessages::transfer(const Message& message, const Buffers& buffers, cudaStream_t stream) const {
  const DataType data_type = plan_.problem.data_type;
  const Communicator& communicator = follows_last_tiles(message) ? alone_ : beside_gemm_;
  switch (message.kind) {
    case MessageKind::all_reduce:
      communicator.all_reduce(at(buffers, message.source), count(message.source), data_type, stream);
      break;
    case MessageKind::reduce_scatter:
      communicator.reduce_scatter(at(buffers, message.source), at(buffers, message.destination),
                                  count(message.destination), data_type, stream);
      break;
    case MessageKind::all_gather:
      communicator.all_gather(at(buffers, message.source), at(buffers, message.destination),
                              count(message.source), data_type, stream);
      break;
    case MessageKind::exchange:
      communicator.exchange(parts(message.sends, buffers), parts(message.receives, buffers), data_type,
                            stream);
      break;
    case MessageKind::copy:
    case MessageKind::store:
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
  if (done >= plan_.messages.size()) {
    return std::make_exception_ptr(
        WaitExpired(fmt::format("rank {}: all messages of a run are done but the run is not", plan_.rank)));
  }
  const Message& current = plan_.messages[done];
  const std::string where = fmt::format("rank {} of {}: message {} ({} of group {})", plan_.rank,
                                        plan_.problem.ranks, done, name(current.kind), current.group);
  std::string counters;
  for (const Wait& wait : current.waits) {
    const std::uint32_t value = values[static_cast<std::size_t>(wait.counter)];
    const std::int32_t target = plan_.counters[static_cast<std::size_t>(wait.counter)].target;
    const std::string counter = describe_counter(plan_, wait.counter);
    if (!computed_before_ && value < static_cast<std::uint32_t>(target)) {
      return std::make_exception_ptr(WaitExpired(
          fmt::format("{} waited for {} for too long: expected {}, is {}", where, counter, target, value)));
    }
    counters += fmt::format("; {} is {} of {}", counter, value, target);
  }
  return std::make_exception_ptr(
      CommunicationError(fmt::format("{} was not answered by every rank in time{}", where, counters)));
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
