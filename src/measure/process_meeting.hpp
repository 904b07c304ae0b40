/// Where those ranks of a communicator that are threads of one process wait for each other.
#pragma once

#include <memory>
#include <vector>

#include "flashoverlap/communicator.hpp"

namespace flashoverlap {

/// A barrier on the host. CUDA may wait for all GPUs of a process to free memory, so no barrier that runs on
/// GPUs can separate what one thread frees from what another one enqueues.
class ProcessMeeting {
 public:
  /// What the ranks tell each other to find out who shares a process: numbers that fp32 holds. Another one
  /// for each meeting place.
  static std::vector<double> ticket();

  /// `tickets`: of all ranks, in rank order.
  ProcessMeeting(const Communicator& communicator, const std::vector<std::vector<double>>& tickets);

  /// Whether all ranks are threads of this process.
  bool has_all_ranks() const { return has_all_ranks_; }

  /// Throws `CommunicationError` if one does not come within four times the communicator's limit, or the
  /// communicator is aborted meanwhile.
  void meet();

 private:
  struct Room;
  const Communicator& communicator_;
  std::shared_ptr<Room> room_;
  bool has_all_ranks_ = false;
};

}  // namespace flashoverlap
