#include "exec/cuda/graph_marks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/give_up.hpp"
#include "cuda/driver.hpp"
#include "exec/cuda/message_kernels.hpp"

namespace flashoverlap {
namespace {

constexpr int runs_per_mark = 16;

/// A graph that a stream is being captured into.
struct Capture {
  cuuint64_t id = 0;  ///< of no other capture of this process
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> last;  ///< what comes next in the stream comes after these
};

std::optional<Capture> capture_of(cudaStream_t stream) {
  static const auto capture_info =
      driver_function<PFN_cuStreamGetCaptureInfo_v12030>("cuStreamGetCaptureInfo", 12030);
  Capture capture;
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  check_driver("cuStreamGetCaptureInfo",
               capture_info(stream, &status, &capture.id, &capture.graph, &last, &edges, &count));
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return std::nullopt;
  capture.last.assign(last, last + count);
  return capture;
}

/// What comes next in the stream, which is being captured, comes after `node` alone.
void continue_after(cudaStream_t stream, CUgraphNode node) {
  static const auto update = driver_function<PFN_cuStreamUpdateCaptureDependencies_v11030>(
      "cuStreamUpdateCaptureDependencies", 11030);
  check_driver("cuStreamUpdateCaptureDependencies",
               update(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
}

StreamOperations writing(std::uint32_t* word, std::uint32_t value) {
  return {.operations = {{.word = word, .value = value, .waits = 0}}, .count = 1};
}

/// Writes zero after what the stream has captured. Nodes of a graph that is being captured may not be
/// removed, so it is a graph of its own, which can be emptied.
CUgraphNode add_end(cudaStream_t stream, const Capture& capture, std::uint32_t* word) {
  cudaGraph_t graph = nullptr;
  FLASHOVERLAP_CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t end = nullptr;
  cudaError_t status = add_operations(writing(word, 0), graph);
  if (status == cudaSuccess)
    status = cudaGraphAddChildGraphNode(&end, capture.graph, capture.last.data(), capture.last.size(), graph);
  cudaGraphDestroy(graph);
  FLASHOVERLAP_CUDA(status);
  continue_after(stream, end);
  return end;
}

/// It is not the end after all.
void empty(CUgraphNode end) {
  cudaGraph_t graph = nullptr;
  FLASHOVERLAP_CUDA(cudaGraphChildGraphNodeGetGraph(end, &graph));
  cudaGraphNode_t write = nullptr;
  std::size_t count = 1;
  FLASHOVERLAP_CUDA(cudaGraphGetNodes(graph, &write, &count));
  FLASHOVERLAP_CUDA(cudaGraphDestroyNode(write));
}

}  // namespace

void GraphMarks::begin(cudaStream_t stream) {
  watch();
  const std::optional<Capture> capture = capture_of(stream);
  if (!capture) return;  // it has failed, and whoever ends it is told so
  if (capture->id != capture_) runs_.clear();
  capture_ = capture->id;
  const auto [found, is_first] =
      runs_.try_emplace(stream, Runs{.word = std::min(runs_.size(), most_streams - 1)});
  Runs& runs = found->second;
  if (!is_first && ++runs.unmarked < runs_per_mark) return;
  runs.unmarked = 0;
  if (++number_ == 0) number_ = 1;
  FLASHOVERLAP_CUDA(operate(writing(words_.device(runs.word), number_), stream));
}

void GraphMarks::end(cudaStream_t stream) {
  const std::optional<Capture> capture = capture_of(stream);
  const auto found = runs_.find(stream);
  if (!capture || capture->id != capture_ || found == runs_.end()) return;  // it has failed
  Runs& runs = found->second;
  if (runs.end != nullptr) empty(std::exchange(runs.end, nullptr));
  runs.end = add_end(stream, *capture, words_.device(runs.word));
}

/// The newest number: where it hangs, the word stays.
std::uint32_t GraphMarks::running() const {
  std::uint32_t newest = 0;
  for (std::size_t word = 0; word < most_streams; ++word) newest = std::max(newest, words_.read(word));
  return newest;
}

void GraphMarks::watch() {
  if (watched_) return;
  watched_.emplace(
      run_watch(communicator_), communicator_.options().wait_limit,
      WatchedRuns::Callbacks{
          .running = [this] { return running(); },
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
