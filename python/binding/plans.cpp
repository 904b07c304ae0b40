#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.hpp"
#include "core.hpp"
#include "flashoverlap/gpu_support.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "hash.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

std::string representation(const Schedule& s) {
  return fmt::format(
      "Schedule(\"{}\", layout=\"{}\", tile_rows={}, tile_cols={}, cluster_rows={}, multiprocessors={}, "
      "first_multiprocessors={}, comm_multiprocessors={}, raster={}, waves_per_group={}, groups=[{}], "
      "rounds={}, shots={}, share_k={})",
      name(s.strategy), name(s.layout), s.tile_rows, s.tile_cols, s.cluster_rows, s.multiprocessors,
      s.first_multiprocessors, s.comm_multiprocessors, s.raster, s.waves_per_group, fmt::join(s.groups, ", "),
      s.rounds, s.shots, s.share_k ? "True" : "False");
}

std::string representation(const Plans& plans) {
  const Plan& plan = plans.of_ranks.front();
  return fmt::format("<Plans of {} by {}: {} tiles, {} messages on rank 0 of {}>",
                     name(plan.problem.operation), name(plan.schedule.strategy), plan.tiles.size(),
                     plan.messages.size(), plan.problem.ranks);
}

}  // namespace

void bind_plans(nb::module_& module) {
  nb::class_<Schedule>(
      module, "Schedule",
      "How a problem is computed and overlapped.\n\n"
      "strategy: \"sequential\", \"signal\", \"copy\", \"store\" or \"p2p\". Most callers let\n"
      "`search` or the tuner choose.")
      .def(
          "__init__",
          [](Schedule* self, const nb::args& by_place, const nb::kwargs& by_name) {
            CallArguments given(by_place, by_name, "Schedule(\"signal\", tile_rows=128)");
            Schedule schedule;
            given.require_first("strategy", schedule.strategy);
            given.take("layout", schedule.layout);
            given.take("tile_rows", schedule.tile_rows);
            given.take("tile_cols", schedule.tile_cols);
            given.take("cluster_rows", schedule.cluster_rows);
            given.take("multiprocessors", schedule.multiprocessors);
            given.take("first_multiprocessors", schedule.first_multiprocessors);
            given.take("comm_multiprocessors", schedule.comm_multiprocessors);
            given.take("raster", schedule.raster);
            given.take("waves_per_group", schedule.waves_per_group);
            given.take("groups", schedule.groups);
            given.take("rounds", schedule.rounds);
            given.take("shots", schedule.shots);
            given.take("share_k", schedule.share_k);
            given.require_no_others();
            validate(schedule);
            new (self) Schedule(std::move(schedule));
          },
          nb::sig("def __init__(self, strategy: str, *, layout: str = 'natural', tile_rows: int = 128, "
                  "tile_cols: int = 256, cluster_rows: int = 1, multiprocessors: int = 132, "
                  "first_multiprocessors: int = 0, comm_multiprocessors: int = 0, raster: int = 8, "
                  "waves_per_group: int = 1, groups: collections.abc.Sequence[int] = [], rounds: int = 1, "
                  "shots: int = 0, share_k: bool = False) -> None"))
      .def_ro("strategy", &Schedule::strategy)
      .def_ro("layout", &Schedule::layout)
      .def_ro("tile_rows", &Schedule::tile_rows)
      .def_ro("tile_cols", &Schedule::tile_cols)
      .def_ro("cluster_rows", &Schedule::cluster_rows)
      .def_ro("multiprocessors", &Schedule::multiprocessors)
      .def_ro("comm_multiprocessors", &Schedule::comm_multiprocessors)
      .def_ro("waves_per_group", &Schedule::waves_per_group)
      .def_ro("groups", &Schedule::groups)
      .def_ro("rounds", &Schedule::rounds)
      .def_ro("shots", &Schedule::shots)
      .def_ro("share_k", &Schedule::share_k)
      .def(
          "__eq__", [](const Schedule& one, const Schedule& other) { return one == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", &hash<Schedule>)
      .def("__repr__", [](const Schedule& schedule) { return representation(schedule); });

  nb::class_<Plans>(module, "Plans", "What every rank does: its tiles in order, and its messages in order.")
      .def(
          "__init__",
          [](Plans* self, const Problem& problem, const Schedule& schedule) {
            new (self) Plans{make_plans(problem, schedule)};
          },
          "problem"_a, "schedule"_a)
      .def_static(
          "from_json", [](const std::string& text) { return Plans{plans_from_json(text)}; }, "text"_a,
          "Reads what `to_json` or `flashoverlap plan --save` has written.")
      .def("to_json", [](const Plans& plans) { return plans_to_json(plans.of_ranks); })
      .def(
          "validate", [](const Plans& plans) { validate(plans.of_ranks); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Proves that the plans compute the problem. Raises InvalidPlan with the first thing that is wrong.")
      .def(
          "obstacle",
          [](const Plans& plans, const Machine& machine) {
            validate(plans.of_ranks);
            return gpu_obstacle(plans.of_ranks, machine);
          },
          "machine"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Why GPUs as the machine's cannot run the plans, in one line, as where they have no kernel of the\n"
          "schedule's tile, or no multiprocessor is left to the communication. None where they can.\n"
          "Raises InvalidPlan for plans that do not compute the problem.")
      .def_prop_ro("problem", [](const Plans& plans) { return plans.of_ranks.front().problem; })
      .def_prop_ro("schedule", [](const Plans& plans) { return plans.of_ranks.front().schedule; })
      .def("__repr__", [](const Plans& plans) { return representation(plans); });
}

}  // namespace flashoverlap::python
