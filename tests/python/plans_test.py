"""Plans, machines and predictions, which need no ranks."""

import json
from xml.etree import ElementTree

import pytest

import flashoverlap

PRESETS = flashoverlap.Machine.presets()
PROBLEM = flashoverlap.Problem("gemm_reduce_scatter", m=1024, n=768, k=512, ranks=4)


@pytest.fixture
def machine():
    return flashoverlap.Machine.preset("h200-nvlink")


def best_of(strategy, machine):
    return flashoverlap.search(PROBLEM, machine, [strategy])[0]


@pytest.mark.parametrize("strategy", ["sequential", "signal", "copy", "store", "p2p"])
class TestEachStrategy:
    def test_plans_that_are_read_are_those_that_were_written(self, strategy, machine):
        plans = flashoverlap.Plans(PROBLEM, best_of(strategy, machine).schedule)
        read = flashoverlap.Plans.from_json(plans.to_json())
        assert (read.problem, read.schedule, repr(read)) == (PROBLEM, plans.schedule, repr(plans))
        assert read.to_json() == plans.to_json()
        read.validate()

    def test_plans_take_what_their_candidate_is_predicted_to_take(self, strategy, machine):
        best = best_of(strategy, machine)
        timeline = flashoverlap.simulate(flashoverlap.Plans(PROBLEM, best.schedule), machine)
        assert timeline.latency_us == pytest.approx(best.predicted_us)
        assert repr(best) == f"<Candidate {strategy} {best.predicted_us:.1f} µs>"

    def test_a_timeline_has_its_parts_and_its_speed_up(self, strategy, machine):
        timeline = flashoverlap.simulate(flashoverlap.Plans(PROBLEM, best_of(strategy, machine).schedule), machine)
        assert 0 < timeline.gemm_us <= timeline.latency_us
        assert timeline.speed_up == pytest.approx(timeline.sequential_us / timeline.latency_us)


def test_a_timeline_is_drawn_and_traced(machine):
    timeline = flashoverlap.simulate(flashoverlap.Plans(PROBLEM, best_of("signal", machine).schedule), machine)
    assert ElementTree.fromstring(timeline.svg()).tag.endswith("svg")
    assert timeline._repr_svg_() == timeline.svg()
    events = json.loads(timeline.chrome_trace())["traceEvents"]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == [*(f"rank {rank}" for rank in range(PROBLEM.ranks)), "sequential"]


def test_plans_that_do_not_compute_the_problem_are_invalid(machine):
    text = json.loads(flashoverlap.Plans(PROBLEM, best_of("store", machine).schedule).to_json())
    text["plans"][0]["tiles"].pop()
    plans = flashoverlap.Plans.from_json(json.dumps(text))
    with pytest.raises(flashoverlap.InvalidPlan):
        plans.validate()
    with pytest.raises(flashoverlap.InvalidPlan):
        plans.obstacle(machine)


def test_a_machine_without_peer_access_refuses_plans_that_need_it(machine):
    plans = flashoverlap.Plans(PROBLEM, best_of("store", machine).schedule)
    with pytest.raises(flashoverlap.InvalidArgument, match="has no peer access"):
        flashoverlap.simulate(plans, flashoverlap.Machine.preset("rtx4090"))


def test_plans_say_why_gpus_cannot_run_them_though_they_are_predicted(machine):
    def plans_of(**sizes):
        return flashoverlap.Plans(PROBLEM, flashoverlap.Schedule("copy", **sizes))

    odd, many = plans_of(tile_rows=100, tile_cols=100), plans_of(multiprocessors=4096)
    assert odd.obstacle(machine).startswith("tile = 100x100")
    assert many.obstacle(machine).startswith("multiprocessors = 4096: must be at most the GPU's 132")
    for plans in (odd, many):
        assert "\n" not in plans.obstacle(machine)
        assert flashoverlap.simulate(plans, machine).latency_us > 0


@pytest.mark.parametrize("strategy", ["sequential", "signal", "copy", "store", "p2p"])
def test_what_a_search_finds_has_no_obstacle(strategy, machine):
    plans = flashoverlap.Plans(PROBLEM, best_of(strategy, machine).schedule)
    assert plans.obstacle(machine) is None


def test_without_peer_access_plans_that_need_it_have_an_obstacle(machine):
    plans = flashoverlap.Plans(PROBLEM, best_of("store", machine).schedule)
    assert "needs peer access" in plans.obstacle(flashoverlap.Machine.preset("rtx4090"))


@pytest.mark.parametrize("name", PRESETS)
def test_a_machine_that_is_read_is_the_one_that_was_written(name):
    machine = flashoverlap.Machine.preset(name)
    read = flashoverlap.Machine.from_json(machine.to_json())
    assert read.to_json() == machine.to_json()
    for each in (machine, read):
        assert (each.name, repr(each)) == (name, f"<Machine {name}>")
        assert each.multiprocessors > 0 and each.sources


def test_an_unknown_preset_is_refused_with_those_there_are():
    with pytest.raises(flashoverlap.InvalidArgument, match=", ".join(PRESETS)):
        flashoverlap.Machine.preset("none")


@pytest.mark.parametrize("text", ["", "[]", "{}"])
@pytest.mark.parametrize("kind", [flashoverlap.Plans, flashoverlap.Machine])
def test_text_of_something_else_is_refused(kind, text):
    with pytest.raises(flashoverlap.InvalidArgument):
        kind.from_json(text)
