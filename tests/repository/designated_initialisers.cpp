// Designated initialisers as users write them, with one field of every public struct that has several: the
// others need default initialisers, or g++ warns.
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "flashoverlap/result_reader.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "flashoverlap/tuner.hpp"
#include "flashoverlap/validate.hpp"
#include "flashoverlap/workspace_bytes.hpp"

namespace flashoverlap::users {

Problem problem{.m = 8};
Shape shape{.rows = 8};
Schedule schedule{.strategy = Strategy::copy};
Plan plan{.rank = 1};
Buffer buffer{.rows = 8};
Counter counter{.target = 1};
Raise raise{.rank = 1};
Tile tile{.row = 1};
RowTarget row_target{.rank = 1};
Addends addends{.count = 1};
ABlocks a_blocks{.row_stride = 1};
Region region{.row = 1};
Wait wait{.counter = 1};
Part part{.peer = 1};
Message message{.kind = MessageKind::copy};
RowOrigin row_origin{.rank = 1};
Reorder reorder{.block_rows = 1};
Output output{.rows = 1};
Finding finding{.violation = Violation::race};
Curve::Point point{.size = 1};
KernelCosts kernel_costs{.b_layout = OperandLayout::row_contiguous};
Machine machine{.multiprocessors = 1};
KernelTile kernel_tile{.rows = 64};
KernelFamily kernel_family{.step_depth = 64};
Interval interval{.rank = 1};
Simulation simulation{.latency_us = 1};
SequentialRun sequential_run{.gemm_us = 1};
TimelineCaption timeline_caption{.title = "one"};
GroupingCosts grouping_costs{.waves = 1};
SearchSpace search_space{.layouts = {}};
Candidate candidate{.predicted_us = 1};
PredictedGrouping predicted_grouping{.latency_us = 1};
HostOptions host_options{.delay_seed = 1};
CommunicatorOptions communicator_options{.wait_limit = std::chrono::seconds(1)};
CollectiveMemory collective_memory{.is_shared = true};
Communicator::Part communicator_part{.peer = 1};
WorkspaceBytes workspace_bytes{.device = 1};
Pitches pitches{.a = 8};
OperatorOptions operator_options{.own_result = true};
OperatorMemory operator_memory{.own = 1};
MessageTimes message_times{.done_us = 1};
RunTimes run_times{.done_us = 1};
RmsNorm rms_norm{.eps = 1e-5F};
TuningSite tuning_site{.ranks = 2};
TunedPlan tuned_plan{.tuned_us = 1};
CachedPlan cached_plan{.site = {}};
TunerOptions tuner_options{.measure = false};

}  // namespace flashoverlap::users
