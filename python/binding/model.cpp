#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "core.hpp"
#include "flashoverlap/search.hpp"
#include "names.hpp"
#include "search/prediction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

/// What is predicted of plans on a machine.
struct Timeline {
  Prediction prediction;
  TimelineCaption caption;

  std::string svg() const { return timeline_svg(prediction.simulation, caption); }
};

Timeline simulated(const Plans& plans, const Machine& machine) {
  const Plan& plan = plans.of_ranks.front();
  const Problem& problem = plan.problem;
  Timeline timeline{predict(plans.of_ranks, machine), {}};
  timeline.caption = {.title = fmt::format("{} m {} n {} k {} on {} ranks", name(problem.operation),
                                           problem.m, problem.n, problem.k, problem.ranks),
                      .subtitle = fmt::format("{}; {}", name(plan.schedule.strategy), machine.name),
                      .source = TimelineSource::predicted,
                      .sequential = timeline.prediction.sequential};
  return timeline;
}

using Name = nb::typed<nb::object, nb::str>;
using Names = nb::typed<nb::object, nb::typed<nb::sequence, nb::str>>;

template <typename Enum>
std::vector<Enum> some(std::string_view argument, const std::optional<Names>& names) {
  if (!names) return {};
  if (nb::isinstance<nb::str>(*names) || !nb::isinstance<nb::sequence>(*names))
    throw nb::type_error(refusal(argument, *names, "must be a list of names").c_str());
  std::vector<Enum> found;
  for (const nb::handle each : *names)
    found.push_back(enumerator<Enum>(each, fmt::format("{}[{}]", argument, found.size())));
  require(!found.empty(), argument, "none", "must be one or more, or not given");
  return found;
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<Machine>(module, "Machine",
                      "GPUs and their connections as data: all that predictions know of them.")
      .def_static("preset", &preset, "name"_a, "One of `Machine.presets()`.")
      .def_static("presets", &preset_names)
      .def_static("from_json", &machine_from_json, "text"_a,
                  "Reads what `flashoverlap tune machine` has written.")
      .def("to_json", &machine_to_json)
      .def_ro("name", &Machine::name)
      .def_ro("multiprocessors", &Machine::multiprocessors)
      .def_ro("peer_access", &Machine::peer_access)
      .def_ro("sources", &Machine::sources, "Where each figure comes from.")
      .def("__repr__", [](const Machine& machine) { return fmt::format("<Machine {}>", machine.name); });

  nb::class_<Candidate>(module, "Candidate", "A schedule, and what it is predicted to take.")
      .def_ro("schedule", &Candidate::schedule)
      .def_ro("predicted_us", &Candidate::predicted_us)
      .def("__repr__", [](const Candidate& candidate) {
        return fmt::format("<Candidate {} {:.1f} µs>", name(candidate.schedule.strategy),
                           candidate.predicted_us);
      });

  module.def(
      "search",
      [](const Problem& problem, const Machine& machine, const std::optional<Names>& strategies,
         const std::optional<Names>& layouts, const Name& reader) {
        const SearchSpace space{.strategies = some<Strategy>("strategies", strategies),
                                .layouts = some<Layout>("layouts", layouts),
                                .reader = enumerator<Reader>(reader, "reader")};
        const nb::gil_scoped_release released;
        return search_schedules(problem, machine, space);
      },
      "problem"_a, "machine"_a, "strategies"_a = nb::none(), "layouts"_a = nb::none(), "reader"_a = "caller",
      "The schedules that are worth trying, the one that is predicted to be fastest first: for a result\n"
      "that the `caller` reads, in natural order, or a `norm` (`Operator.rms_norm`), in any layout.");

  nb::class_<Timeline>(module, "Timeline", "What plans are predicted to do, and when. Notebooks draw it.")
      .def_prop_ro("latency_us", [](const Timeline& self) { return self.prediction.simulation.latency_us; })
      .def_prop_ro("gemm_us", [](const Timeline& self) { return self.prediction.simulation.gemm_us; })
      .def_prop_ro(
          "sequential_us", [](const Timeline& self) { return self.prediction.sequential.total_us; },
          "The same problem without overlap.")
      .def_prop_ro("speed_up", [](const Timeline& self) { return self.prediction.speed_up(); })
      .def("svg", &Timeline::svg)
      .def("_repr_svg_", &Timeline::svg)
      .def(
          "chrome_trace",
          [](const Timeline& self) { return chrome_trace(self.prediction.simulation, self.caption); },
          "JSON for Perfetto or chrome://tracing.");

  module.def(
      "simulate", &simulated, "plans"_a, "machine"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Predicts plans on a machine, whether or not there is a kernel for them (see `Plans.obstacle`).\n"
      "Raises InvalidArgument where they need peer access that the machine has not, or leave no\n"
      "multiprocessors to the collectives that their tiles wait for.");
}

}  // namespace flashoverlap::python
