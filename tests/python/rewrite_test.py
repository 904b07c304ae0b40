"""Graphs with functional collectives, before and after products are overlapped."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.fx.experimental.symbolic_shapes import (  # noqa: E402
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
from flashoverlap.torch.rewrite import OverlapPass, overlap_products  # noqa: E402

collectives = torch.ops._c10d_functional
RANKS = 2
S, B, K, N = 16, 3, 32, 48  # sequence, batch


def gather(x, group):
    return collectives.wait_tensor(collectives.all_gather_into_tensor(x, RANKS, group))


def scatter(x, group, reduction="sum"):
    return collectives.wait_tensor(collectives.reduce_scatter_tensor(x, reduction, RANKS, group))


def reduce(x, group, reduction="sum"):
    return collectives.wait_tensor(collectives.all_reduce(x, reduction, group))


def linear(x, weight):
    return (x.reshape(-1, x.shape[-1]) @ weight.t()).view(*x.shape[:-1], weight.shape[0])


def traced(function, communicator, shapes):
    group = parallel.groups.name_of(communicator)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(torch.zeros(shape)) for shape in shapes]
        return make_fx(lambda *given: function(group, *given))(*fakes)


def waits(graph):
    return len(graph.graph.find_nodes(op="call_function", target=collectives.wait_tensor.default))


def inputs_of_ranks(generator, shapes):
    return [[torch.from_numpy(generator.uniform(-1, 1, shape)).float() for shape in shapes] for _ in range(RANKS)]


@pytest.fixture
def run(generator):
    """The results of `function(group, *inputs)` on each rank, rewritten, and how many collectives were replaced."""

    def run(function, shapes, replaced):
        inputs = inputs_of_ranks(generator, shapes)

        # Traced here for each rank, as PyTorch traces in one thread.
        communicators = flashoverlap.run_ranks(RANKS, lambda communicator: communicator)
        graphs = [traced(function, communicator, shapes) for communicator in communicators]
        for graph in graphs:
            assert overlap_products(graph.graph, (torch.float32,)) == replaced
            graph.recompile()
        if waits(graphs[0]) > 0:
            return None
        return inputs, flashoverlap.run_ranks(RANKS, lambda own: graphs[own.rank](*inputs[own.rank]))

    return run


def expect_close(results, expected):
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduction", ["sum", "avg"])
def test_a_product_that_is_reduced_and_scattered(run, reduction):
    inputs, results = run(
        lambda group, x, w: scatter(linear(x, w), group, reduction), [(S, B, K), (N, K)], replaced=1
    )
    total = sum(linear(x, w) for x, w in inputs) / (RANKS if reduction == "avg" else 1)
    expect_close(results, total.chunk(RANKS))


@pytest.mark.parametrize("reduction", ["sum", "avg"])
def test_a_product_that_is_reduced(run, reduction):
    inputs, results = run(
        lambda group, x, w: reduce(linear(x, w), group, reduction), [(S, B, K), (N, K)], replaced=1
    )
    total = sum(linear(x, w) for x, w in inputs) / (RANKS if reduction == "avg" else 1)
    expect_close(results, [total] * RANKS)


@pytest.mark.parametrize("collective", [scatter, reduce])
def test_a_rewritten_graph_does_not_know_how_many_ranks_there_are(collective):
    """Inductor keeps it, also for another number of them."""

    def on_rank(communicator):
        graph = traced(
            lambda group, x, w: collective(linear(x, w), group, "avg"), communicator, [(S, B, K), (N, K)]
        )
        assert overlap_products(graph.graph, (torch.float32,)) == 1
        return [node.target for node in graph.graph.nodes if node.op == "call_function"]

    (targets,) = flashoverlap.run_ranks(1, on_rank)
    assert torch.ops.flashoverlap.mean_of_ranks.default in targets
    assert torch.ops.aten.div.Scalar not in targets


def test_a_row_that_is_scattered_in_parts_stays(run):
    assert run(lambda group, x, w: scatter((x[:1] @ w.t()).view(-1), group), [(S, K), (N, K)], replaced=0) is None


def test_a_row_that_is_gathered_in_parts_and_read_twice_stays(run):
    def function(group, x, w, v):
        row = gather(x.view(-1), group).view(1, -1)
        return row @ w.t(), row @ v.t()

    assert run(function, [(1, K), (N, RANKS * K), (24, RANKS * K)], replaced=0) is None


def test_the_only_product_of_what_is_gathered(run):
    inputs, results = run(lambda group, x, w: linear(gather(x, group), w), [(S, B, K), (N, K)], replaced=1)
    whole = torch.cat([x for x, _ in inputs])
    expect_close(results, [linear(whole, w) for _, w in inputs])


def test_several_products_of_what_is_gathered_once(run):
    def function(group, x, w, v):
        whole = gather(x, group)
        rows = whole.reshape(-1, K)
        return rows @ w.t(), rows @ v.t(), rows.t() @ rows

    inputs, results = run(function, [(S, B, K), (N, K), (24, K)], replaced=1)
    rows = torch.cat([x for x, *_ in inputs]).reshape(-1, K)
    for result, (_, w, v) in zip(results, inputs):
        expect_close(result, [rows @ w.t(), rows @ v.t(), rows.t() @ rows])


def test_a_column_and_a_row_parallel_layer(run):
    def function(group, x, up, down):
        return scatter(linear(torch.relu(linear(gather(x, group), up)), down), group)

    inputs, results = run(function, [(S, B, K), (N, K), (K, N)], replaced=2)
    whole = torch.cat([x for x, *_ in inputs])
    total = sum(linear(torch.relu(linear(whole, up)), down) for _, up, down in inputs)
    expect_close(results, total.chunk(RANKS))


@pytest.mark.parametrize(
    "shape, view",
    [
        pytest.param((S, 2 * K), lambda x: x[:, ::2], id="not contiguous"),
        pytest.param((S, K + 1), lambda x: x[:, :K], id="rows that begin where GPUs cannot load"),
        pytest.param((1, K), lambda x: x.expand(S, K), id="expanded"),
        pytest.param((K, S), lambda x: x.t(), id="transposed"),
    ],
)
def test_operands_that_lie_in_any_way(run, shape, view):
    inputs, results = run(lambda group, x, w: scatter(view(x) @ w.t(), group), [shape, (N, K)], replaced=1)
    expect_close(results, sum(view(x) @ w.t() for x, w in inputs).chunk(RANKS))
    inputs, results = run(lambda group, x, w: gather(view(x), group) @ w.t(), [shape, (N, K)], replaced=1)
    expect_close(results, [torch.cat([view(x) for x, _ in inputs]) @ w.t() for _, w in inputs])


def test_a_number_of_rows_that_is_a_symbol(generator):
    communicators = flashoverlap.run_ranks(RANKS, lambda communicator: communicator)
    inputs = inputs_of_ranks(generator, [(S, B, K), (N, K)])
    graphs = []
    for communicator in communicators:
        group = parallel.groups.name_of(communicator)
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            sizes = [DimDynamic.DYNAMIC, *[DimDynamic.STATIC] * 4]
            of_x, of_w = StatelessSymbolicContext(sizes[:3]), StatelessSymbolicContext(sizes[3:])
            x, w = inputs[0]
            fakes = [mode.from_tensor(x, symbolic_context=of_x), mode.from_tensor(w, symbolic_context=of_w)]
            graph = make_fx(lambda x, w: scatter(linear(x, w), group))(*fakes)
        assert overlap_products(graph.graph, (torch.float32,)) == 1
        graph.recompile()
        graphs.append(graph)
    results = flashoverlap.run_ranks(RANKS, lambda own: graphs[own.rank](*inputs[own.rank]))
    expect_close(results, sum(linear(x, w) for x, w in inputs).chunk(RANKS))


def self_product(group, x, w):
    rows = gather(x, group).reshape(-1, K)
    return rows @ rows


@pytest.mark.parametrize(
    "function, shapes",
    [
        pytest.param(self_product, [(K // RANKS, K), (N, K)], id="a product with itself"),
        pytest.param(lambda group, x, w: scatter(x @ w.t(), group), [(S, 30), (N, 30)], id="k that GPUs cannot load"),
        pytest.param(
            lambda group, x, w: gather(x, group) @ w.t(), [(S, 30), (N, 30)], id="gathered k that GPUs cannot load"
        ),
    ],
)
def test_what_cannot_be_computed_stays(run, function, shapes):
    run(function, shapes, replaced=0)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda group, x, w: scatter(linear(x, w), group, "max"), id="another reduction"),
        pytest.param(lambda group, x, w: scatter(linear(x, w).relu(), group), id="something between"),
        pytest.param(lambda group, x, w: torch.relu(gather(x, group)), id="no product"),
        pytest.param(
            lambda group, x, w: ((y := linear(x, w)).sum(), scatter(y, group)), id="a product that is used elsewhere"
        ),
        pytest.param(
            lambda group, x, w: ((y := gather(x, group)).sum(), linear(y, w)), id="a use before the first product"
        ),
    ],
)
def test_what_cannot_be_overlapped_stays(run, function):
    run(function, [(S, B, K), (N, K)], replaced=0)


def test_other_data_types_stay():
    (alone,) = flashoverlap.run_ranks(1, lambda communicator: communicator)
    graph = traced(lambda group, x, w: reduce(linear(x, w), group), alone, [(S, B, K), (N, K)])
    OverlapPass()(graph.graph)
    assert waits(graph) == 1
