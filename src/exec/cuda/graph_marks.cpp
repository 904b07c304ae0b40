#include "exec/cuda/graph_marks.hpp"

#include <fmt/format.h>

#include "comm/give_up.hpp"

namespace flashoverlap {
namespace {

constexpr int runs_per_mark = 16;

}  // namespace

void GraphMarks::begin(cudaStream_t stream) {
  watch();
  const std::optional<Capture> capture = capture_of(stream);
  const bool is_first = !capture || capture->id != last_.capture;
  if (is_first) {
    end_ = nullptr;
    runs_.clear();
  } else if (++unmarked_runs_ < runs_per_mark) {
    return;
  }
  unmarked_runs_ = 0;
  if (++number_ == 0) number_ = 1;
  StreamMemoryBatch mark;
  mark.write(word_.device(0), number_);
  mark.enqueue_aside(stream, last_);
  if (end_ != nullptr) add_order(capture->graph, {last_.node}, end_);
}

void GraphMarks::end(cudaStream_t stream) {
  const std::optional<Capture> capture = capture_of(stream);
  if (!capture) return;  // it has failed, and whoever ends it is told so
  if (end_ == nullptr) {
    StreamMemoryBatch mark;
    mark.write(word_.device(0), 0);
    StreamMemoryBatch::LastAside end = last_;
    mark.enqueue_aside(stream, end);
    end_ = end.node;
  } else {
    std::vector<CUgraphNode>& before = runs_[stream];
    remove_order(capture->graph, before, end_);
    add_order(capture->graph, capture->last, end_);
  }
  runs_[stream] = capture->last;
}

void GraphMarks::watch() {
  if (watched_) return;
  watched_.emplace(
      run_watch(communicator_), communicator_.options().wait_limit,
      WatchedRuns::Callbacks{
          .running = [this] { return word_.read(0); },
          .find_error = [this] { communicator_.throw_if_failed(); },
          .expired =
              [this] {
                return std::make_exception_ptr(CommunicationError(
                    fmt::format("rank {} of {}: runs of a CUDA graph were not answered by every rank in time",
                                communicator_.rank(), communicator_.ranks())));
              },
          .give_up = [this](const std::exception_ptr& why) { abort_for(communicator_, why); },
          .release = [] {}});
}

}  // namespace flashoverlap
