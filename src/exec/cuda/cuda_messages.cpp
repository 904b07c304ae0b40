#include "exec/cuda/cuda_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/run_watch.hpp"
#include "cuda/copy_rows.hpp"
#include "cuda/graph.hpp"
#include "exec/cuda/message_kernels.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

/// Whether no message waits for a counter or raises one: NCCL makes them, one after the other.
bool are_transfers_only(const std::vector<Message>& messages) {
  return std::ranges::all_of(
      messages, [](const Message& message) { return message.waits.empty() && message.raises.empty(); });
}

}  // namespace

CudaMessages::CudaMessages(const std::vector<Plan>& plans, std::vector<Message> messages,
                           const Communicator& alone, const Communicator& during_gemm,
                           const PlanMemory& memory, const RowPitches& pitches, const MessageOptions& options)
    : plan_(plans[static_cast<std::size_t>(alone.rank())]),
      options_(options),
      messages_(std::move(messages)),
      alone_(alone),
      during_gemm_(during_gemm),
      memory_(memory),
      graph_marks_(plan_.problem.capacity == 0 && !messages_.empty() && are_transfers_only(messages_)
                       ? &memory.workspace().graph_marks()
                       : nullptr),
      pitches_(pitches),
      counters_(memory.counters(alone.rank())),
      raises_(resolve_raises(messages_, memory,
                             [&](const Raise& raise) { return raised_in_order(plans, plan_.rank, raise); })),
      pending_({after_the_watch(alone_.options().wait_limit), words_.device(expired_word)}) {
  stored_ = StoreMemory(gather_stores(), static_cast<std::size_t>(route_room(plan_).stores));
  note_plan();
  FLASHOVERLAP_CUDA(load_message_kernels());
}

void CudaMessages::note_plan() {
  awaited_by_tiles_.assign(plan_.counters.size(), false);
  for (const Tile& tile : plan_.tiles) {
    for_each_awaited(plan_, tile, [&](std::int32_t counter) {
      awaited_by_tiles_[static_cast<std::size_t>(counter)] = true;
    });
  }
  times_.clear();
  for (std::size_t index = 0; options_.record_times && index < messages_.size(); ++index)
    times_.push_back(shares_times(index) ? times_.back() : std::make_shared<Times>());
}

void CudaMessages::replace(std::vector<Message> messages, cudaStream_t stream) {
  messages_ = std::move(messages);
  raises_ = resolve_raises(messages_, memory_, [](const Raise&) { return true; });
  stored_.replace(gather_stores(), stream);
  note_plan();
}

/// What they store.
std::vector<StoredRectangle> CudaMessages::gather_stores() {
  std::vector<StoredRectangle> rectangles;
  stores_.clear();
  const std::chrono::milliseconds wait_limit = after_the_watch(alone_.options().wait_limit);
  for (std::size_t index = 0; index < messages_.size();) {
    if (messages_[index].kind != MessageKind::store) {
      ++index;
      continue;
    }
    const auto [run, is_new] = stores_.try_emplace(index, plan_, messages_, index, raises_, memory_, pitches_,
                                                   wait_limit, words_.device(expired_word), rectangles);
    index += run->second.messages();
  }
  return rectangles;
}

void CudaMessages::begin(cudaStream_t stream) {
  pending_.clear();
  if (notes_done_) note_done(0);
  if (!is_captured(stream)) {
    RunAhead& ahead = memory_.workspace().run_ahead();
    ahead.await(after_the_watch(alone_.options().wait_limit), [this] { alone_.throw_if_failed(); });
    return ahead.add(runs_.begin(stream), messages_.size());
  }
  if (graph_marks_ != nullptr) graph_marks_->begin(stream);
  if (!writes_runs()) return;
  if (++captured_runs_ == 0) captured_runs_ = 1;
  pending_.write(words_.device(running_word), captured_runs_);
}

std::uint32_t CudaMessages::running() {
  if (const std::uint32_t running = runs_.running(); running != 0) return running;
  if (const std::uint32_t running = words_.read(running_word); running != 0) return running;
  return waits_long() ? waiting_run : 0;
}

void CudaMessages::enqueue(std::size_t first, std::size_t last, const Buffers& own, cudaStream_t stream,
                           cudaEvent_t computed) {
  for (std::size_t index = first; index < last;) {
    if (index > 0) note_done(index);
    const Message& message = messages_[index];
    if (message.after_tiles && computed != nullptr) {
      flush(stream);
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, computed));
    }
    if (const auto stores = stores_.find(index); stores != stores_.end()) {
      enqueue_stores(index, stores->second, own, stream);
      index += stores->second.messages();
    } else {
      enqueue_in_stream(index, own, stream);
      ++index;
    }
  }
}

void CudaMessages::enqueue_stores(std::size_t first, const StoreRun& stores, const Buffers& own,
                                  cudaStream_t stream) {
  if (!stores.waits()) {
    add_waits(messages_[first]);
    reset_awaited(messages_[first]);
  }
  flush(stream);
  record(first, &Times::signalled, stream);
  stores.enqueue(stored_, own, stream, /*rehearses=*/false);
  record(first, &Times::done, stream);
}

/// What follows a message waits for the next one's counters in the same call: nothing but that wait lies
/// between a signal and its transfer. Copies raise on this stream too: on another one, a CUDA graph would
/// make most raises after the last copy only.
void CudaMessages::enqueue_in_stream(std::size_t index, const Buffers& own, cudaStream_t stream) {
  add_waits(messages_[index]);
  const bool only_signals = messages_[index].kind == MessageKind::signal && times_.empty();
  if (!only_signals && !shares_raises(plan_, messages_, index)) flush(stream);
  record(index, &Times::signalled, stream);
  transfer(index, own, stream);
  record(index, &Times::done, stream);
  reset_and_raise(index, stream);
}

/// Stores that are one kernel.
bool CudaMessages::shares_times(std::size_t index) const {
  return messages_[index].kind == MessageKind::store && !stores_.contains(index);
}

void CudaMessages::record(std::size_t index, CudaEvent Times::*event, cudaStream_t stream) const {
  if (!times_.empty()) record_always((*times_[index]).*event, stream);
}

void CudaMessages::add_waits(const Message& message) {
  for (const Wait& wait : message.waits) {
    const bool passed = message.after_tiles && awaited_by_tiles_[static_cast<std::size_t>(wait.counter)];
    if (!passed) pending_.wait_until_reached(counters_ + wait.counter, target_of(plan_, wait.counter));
  }
}

/// Before the message's raises: whoever sees them may raise these counters again.
void CudaMessages::reset_awaited(const Message& message) {
  for (const Wait& wait : message.waits) {
    if (wait.reset) pending_.write(counters_ + wait.counter, 0);
  }
}

/// Writes stay pending; raises that take a kernel are enqueued after them.
void CudaMessages::reset_and_raise(std::size_t index, cudaStream_t stream) {
  reset_awaited(messages_[index]);
  std::vector<std::uint32_t*> shared;
  for (const ResolvedRaise& raise : raises_[index]) {
    if (raise.written) {
      pending_.write(raise.counter, *raise.written);
    } else {
      shared.push_back(raise.counter);
    }
  }
  if (shared.empty()) return;
  flush(stream);
  for (std::size_t first = 0; first < shared.size(); first += most_raises) {
    RaisedCounters raised{};
    raised.count = static_cast<int>(std::min<std::size_t>(most_raises, shared.size() - first));
    std::copy_n(shared.begin() + static_cast<std::ptrdiff_t>(first), raised.count, raised.counters);
    FLASHOVERLAP_CUDA(raise_counters(raised, stream));
  }
}

/// With what the stream does next.
void CudaMessages::note_done(std::size_t messages) {
  pending_.write(words_.device(done_word), static_cast<std::uint32_t>(messages));
  notes_done_ = true;
}

void CudaMessages::flush(cudaStream_t stream) {
  pending_.enqueue(stream);
  pending_.clear();
}

void CudaMessages::join(cudaStream_t stream) {
  note_done(messages_.size());
  note_end(stream);
  flush(stream);
}

void CudaMessages::note_end(cudaStream_t stream) {
  if (writes_runs() && is_captured(stream)) pending_.write(words_.device(running_word), 0);
}

void CudaMessages::end(cudaStream_t stream) {
  flush(stream);
  if (!is_captured(stream)) return runs_.end(stream);
  if (graph_marks_ != nullptr) graph_marks_->end(stream);
}

void CudaMessages::rehearse(const Buffers& own, cudaStream_t stream) {
  runs_.begin(stream);
  for (std::size_t index = 0; index < messages_.size(); ++index) transfer(index, own, stream);
  for (const auto& [first, stores] : stores_) stores.enqueue(stored_, own, stream, /*rehearses=*/true);
  runs_.end(stream);
}

void* CudaMessages::at(const Buffers& own, const Region& region, int rank) const {
  void* const buffer =
      rank == plan_.rank ? own[static_cast<std::size_t>(region.buffer)] : memory_.buffer(rank, region.buffer);
  return static_cast<std::byte*>(buffer) + region.row * row_bytes_apart(plan_, pitches_, region.buffer, rank);
}

std::int64_t CudaMessages::count(const Region& region) const {
  return region.rows * plan_.buffer(region.buffer).cols;
}

std::vector<Communicator::Part> CudaMessages::parts(std::span<const Part> parts, const Buffers& own) const {
  std::vector<Communicator::Part> resolved;
  resolved.reserve(parts.size());
  for (const Part& part : parts)
    resolved.push_back({part.peer, at(own, part.region, plan_.rank), count(part.region)});
  return resolved;
}

/// For a collective, which is at the same place in the lists of all ranks. Exchanges need not be, and keep
/// the cap.
const Communicator& CudaMessages::communicator_for(std::size_t index) const {
  const Message& message = messages_[index];
  const bool is_last = index + 1 == messages_.size() && waits_for_tiles(plan_, message);
  const bool is_fast =
      is_fast_enough(memory_.is_shared(message.source.buffer), plan_.schedule.comm_multiprocessors);
  return is_last && !is_fast ? alone_ : during_gemm_;
}

void CudaMessages::transfer(std::size_t index, const Buffers& own, cudaStream_t stream) const {
  const Message& message = messages_[index];
  const DataType data_type = plan_.problem.data_type;
  const auto source = [&] { return at(own, message.source, plan_.rank); };
  const auto destination = [&] { return at(own, message.destination, plan_.rank); };
  switch (message.kind) {
    case MessageKind::all_reduce:
      communicator_for(index).all_reduce(source(), count(message.source), data_type, stream);
      break;
    case MessageKind::reduce_scatter:
      communicator_for(index).reduce_scatter(source(), destination(), count(message.destination), data_type,
                                             stream);
      break;
    case MessageKind::all_gather:
      during_gemm_.all_gather(source(), destination(), count(message.source), data_type, stream);
      break;
    case MessageKind::exchange:
      during_gemm_.exchange(parts(message.sends, own), parts(message.receives, own), data_type, stream);
      break;
    case MessageKind::copy: copy(message, own, stream); break;
    case MessageKind::store:  // made with others
    case MessageKind::signal: break;
  }
}

void CudaMessages::copy(const Message& message, const Buffers& own, cudaStream_t stream) const {
  const auto pitch = [&](const Region& region, int rank) {
    return static_cast<std::size_t>(row_bytes_apart(plan_, pitches_, region.buffer, rank));
  };
  const std::size_t from_pitch = pitch(message.source, plan_.rank);
  const std::size_t to_pitch = pitch(message.destination, message.peer);
  const std::int64_t element = size_of(plan_.problem.data_type);
  const std::int64_t first = message.col * element;
  const auto row_bytes = static_cast<std::size_t>(moved_cols(plan_, message) * element);
  const auto rows = static_cast<std::size_t>(message.source.rows);
  const std::byte* const from = static_cast<std::byte*>(at(own, message.source, plan_.rank)) + first;
  std::byte* const to = static_cast<std::byte*>(at(own, message.destination, message.peer)) + first;
  copy_rows(to, to_pitch, from, from_pitch, row_bytes, rows, stream);
}

void CudaMessages::check_waits() const {
  if (words_.read(expired_word) == 0) return;
  throw WaitExpired(
      fmt::format("rank {} of {}: messages waited on multiprocessors for their counters for more than {} ms",
                  plan_.rank, plan_.problem.ranks, after_the_watch(alone_.options().wait_limit).count()));
}

std::exception_ptr CudaMessages::report() const {
  const std::uint32_t done = words_.read(done_word);
  const bool has_message = done < messages_.size();
  const std::string where =
      has_message ? fmt::format("rank {} of {}: message {} ({} of group {})", plan_.rank, plan_.problem.ranks,
                                done, name(messages_[done].kind), messages_[done].group)
                  : fmt::format("rank {} of {}:", plan_.rank, plan_.problem.ranks);
  std::vector<std::uint32_t> values(options_.counts ? plan_.counters.size() : 0);
  if (!memory_.workspace().past_streams().read(values.data(), counters_,
                                               values.size() * sizeof(std::uint32_t))) {
    return std::make_exception_ptr(
        WaitExpired(fmt::format("{}{} lasts too long, and its counters cannot be read meanwhile", where,
                                has_message ? "" : " a run")));
  }
  if (!has_message) {
    return std::make_exception_ptr(
        WaitExpired(fmt::format("{} {}{}", where,
                                messages_.empty() ? "the kernel of a run has not ended"
                                                  : "all messages of a run are done but the run is not",
                                missing_for_tiles(values))));
  }
  const Message& current = messages_[done];
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
  std::string missing;
  if (!options_.counts) return missing;
  for (const Tile& tile : plan_.tiles) {
    for_each_awaited(plan_, tile, [&](std::int32_t counter) {
      const std::uint32_t value = values[static_cast<std::size_t>(counter)];
      if (missing.empty() && value < target_of(plan_, counter)) {
        missing = fmt::format("; tiles wait for {}, which is {} of {}", describe_counter(plan_, counter),
                              value, target_of(plan_, counter));
      }
    });
    if (!missing.empty()) break;
  }
  return missing;
}

bool CudaMessages::release() const noexcept {
  if (!options_.counts) return true;
  try {
    std::vector<WordToWrite> words;
    for (std::size_t counter = 0; counter < plan_.counters.size(); ++counter)
      words.push_back({counters_ + counter, static_cast<std::uint32_t>(plan_.counters[counter].target)});
    return memory_.workspace().past_streams().write(words);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::vector<MessageTimes> CudaMessages::times(const std::function<double(cudaEvent_t)>& since_begin) const {
  std::vector<MessageTimes> times;
  for (const auto& each : times_) times.push_back({since_begin(each->signalled), since_begin(each->done)});
  return times;
}

}  // namespace flashoverlap
