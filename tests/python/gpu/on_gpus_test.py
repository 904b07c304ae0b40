"""PyTorch on GPUs, one process per rank: scripts/run_ranks.sh 2 -m pytest tests/python/gpu

Every rank runs the same tests in the same order, against plain products of what all ranks have gathered.
"""

import os
import time

import pytest

if "LOCAL_RANK" not in os.environ:
    pytest.skip("needs one process per GPU, as torchrun starts them", allow_module_level=True)

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch._inductor import config as inductor

import flashoverlap
import flashoverlap.torch as parallel

M, N, K = 1024, 768, 512
DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(scope="session")
def group():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    yield dist.group.WORLD
    dist.barrier()


@pytest.fixture(autouse=True)
def seed(group):
    """The same on all ranks, new for every run."""
    drawn = torch.tensor([int(os.environ.get("FLASHOVERLAP_SEED", time.time_ns() % 2**31))], device="cuda")
    dist.broadcast(drawn, 0)
    print(f"FLASHOVERLAP_SEED={drawn.item()}")
    torch.manual_seed(drawn.item() + dist.get_rank())


def draw(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(dtype)


def of_all(tensor):
    """Each rank's, in fp32."""
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return [part.float() for part in parts]


def own(tensor, dim=0):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def expect_close(result, reference):
    assert result.shape == reference.shape
    error = (result.float() - reference).norm() / reference.norm()
    assert error < 1e-2, error


def total(a, b):
    return sum(x @ w.t() for x, w in zip(of_all(a), of_all(b)))


def operator_by(strategy, problem, communicator, layout="natural", **promises):
    schedule = flashoverlap.search(problem, communicator.machine, [strategy], [layout])[0].schedule
    return flashoverlap.Operator(problem, communicator, schedule, **promises)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [M, 1000, 8])
class TestOperations:
    def test_gemm_all_reduce(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        expect_close(flashoverlap.gemm_all_reduce(a, b, parallel.communicator(group)), total(a, b))

    def test_gemm_reduce_scatter_into_poisoned_memory(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        out = torch.full((m // dist.get_world_size(), N), torch.nan, device="cuda", dtype=dtype)
        assert flashoverlap.gemm_reduce_scatter(a, b, parallel.communicator(group), out) is out
        expect_close(out, own(total(a, b)))

    def test_all_gather_gemm(self, group, m, dtype):
        a, b = draw(m // dist.get_world_size(), K, dtype=dtype), draw(N, K, dtype=dtype)
        out = flashoverlap.all_gather_gemm(a, b, parallel.communicator(group))
        expect_close(out, torch.cat(of_all(a)) @ b.float().t())

    def test_all_to_alls_are_inverse(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        sent = flashoverlap.gemm_all_to_all(a, b, parallel.communicator(group))
        expect_close(sent, torch.cat([own(x @ w.t(), 1) for x, w in zip(of_all(a), of_all(b))]))
        back = flashoverlap.all_to_all_gemm(sent, draw(K, N, dtype=dtype), parallel.communicator(group))
        assert back.shape == (m, K) and back.isfinite().all()


@pytest.mark.parametrize("operation", ["gemm_all_reduce", "gemm_all_to_all"])
@pytest.mark.parametrize("strategy", ["copy", "store"])
def test_a_result_that_peers_write_is_the_callers(group, operation, strategy):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem(operation, m=M, n=N, k=K, ranks=communicator.ranks)
    operator = operator_by(strategy, problem, communicator)
    a, b = draw(M, K), draw(N, K)
    first = operator.run(a, b)
    kept = first.clone()
    operator.run(draw(M, K), b)
    assert torch.equal(first, kept)
    if operation == "gemm_all_reduce":
        expect_close(first, total(a, b))


@pytest.mark.parametrize("strategy", ["sequential", "signal", "copy", "store", "p2p"])
@pytest.mark.parametrize("k", [K, 1000])
def test_gathered_rows_are_those_of_all_ranks(group, strategy, k):
    """Also where rows of k elements do not begin at lines of L2."""
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("all_gather_gemm", m=M, n=N, k=k, ranks=communicator.ranks)
    expect_gathered(operator_by(strategy, problem, communicator), k)


def test_rows_that_are_gathered_in_several_groups_are_in_order(group):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("all_gather_gemm", m=M, n=N, k=K, ranks=communicator.ranks)
    best = flashoverlap.search(problem, communicator.machine, ["signal"])[0].schedule
    tile = {each: getattr(best, each) for each in ("tile_rows", "tile_cols", "cluster_rows")}
    schedule = flashoverlap.Schedule("signal", **tile, multiprocessors=2, waves_per_group=1)
    expect_gathered(flashoverlap.Operator(problem, communicator, schedule), K)


def expect_gathered(operator, k):
    ranks = operator.problem.ranks
    kept = []
    for keep in (False, True, False):
        a, b = draw(M // ranks, k), draw(N, k)
        whole = torch.cat(of_all(a))
        product, gathered = operator.run_and_gather(a, b, keep=keep)
        expect_close(product, whole @ b.float().t())
        assert torch.equal(gathered.float(), whole)
        if keep:
            kept.append((gathered, whole))
    for gathered, whole in kept:
        assert torch.equal(gathered.float(), whole)  # after another run


@pytest.mark.parametrize("strategy", ["sequential", "copy", "store"])
def test_exchanged_heads_whose_columns_do_not_begin_at_lines(group, strategy):
    communicator = parallel.communicator(group)
    world, heads = communicator.ranks, 504
    problem = flashoverlap.Problem("all_to_all_gemm", m=M, n=N, k=heads * world, ranks=world, exchange="heads")
    operator = operator_by(strategy, problem, communicator)
    a, b = draw(M * world, heads), draw(N, heads * world)
    parts = [own(part) for part in of_all(a)]
    product, exchanged = operator.run_and_gather(a, b)
    expect_close(product, torch.cat(parts, 1) @ b.float().t())
    assert torch.equal(exchanged.float(), torch.cat(parts))


OPERATIONS = {
    parallel.matmul_reduce_scatter: lambda world: ((M, K), (N, K), (M // world, N)),
    parallel.all_gather_matmul: lambda world: ((M // world, K), (N, K), (M, N)),
    parallel.sharded_weight_matmul: lambda world: ((M, K), (N // world, K), (M, N)),
    parallel.matmul_all_to_all: lambda world: ((M, K), (N, K), (M * world, N // world)),
    parallel.all_to_all_matmul: lambda world: ((M * world, K // world), (N, K), (M, N)),
}


def whole_results(operation, xs, weights):
    """Of all ranks, differentiably, in one process."""
    if operation is parallel.matmul_reduce_scatter:
        return sum(x @ w.t() for x, w in zip(xs, weights)).chunk(len(xs))
    if operation is parallel.all_gather_matmul:
        return [torch.cat(xs) @ w.t() for w in weights]
    if operation is parallel.matmul_all_to_all:
        columns = [(x @ w.t()).chunk(len(xs), 1) for x, w in zip(xs, weights)]
        return [torch.cat(of_rank) for of_rank in zip(*columns)]
    if operation is parallel.all_to_all_matmul:
        rows = [x.chunk(len(xs)) for x in xs]
        return [torch.cat(of_rank, 1) @ w.t() for of_rank, w in zip(zip(*rows), weights)]
    return [x @ torch.cat(weights).t() for x in xs]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_gradients_are_those_of_the_whole_computation(group, operation):
    x_shape, weight_shape, out_shape = OPERATIONS[operation](dist.get_world_size())
    x, weight, gradient = draw(*x_shape).requires_grad_(), draw(*weight_shape).requires_grad_(), draw(*out_shape)
    out = operation(x, weight, group)
    of_x, of_weight = torch.autograd.grad(out, [x, weight], gradient)

    xs, weights = ([each.requires_grad_() for each in of_all(of.detach())] for of in (x, weight))
    outs = whole_results(operation, xs, weights)
    torch.autograd.backward(outs, of_all(gradient))
    rank = dist.get_rank()
    for result, reference in ((out.detach(), outs[rank].detach()), (of_x, xs[rank].grad), (of_weight, weights[rank].grad)):
        expect_close(result, reference)


def test_pytorchs_schema_gives_what_pytorchs_operations_give(group):
    a, b = draw(M, K), draw(K, N)
    shard = own(a).contiguous()
    name = group.group_name
    expect_close(
        torch.ops.flashoverlap.fused_matmul_reduce_scatter(a, b, "sum", 0, name),
        own(sum(x @ w for x, w in zip(of_all(a), of_all(b)))),
    )
    gathered, (product,) = torch.ops.flashoverlap.fused_all_gather_matmul(shard, [b], 0, name)
    whole = torch.cat(of_all(shard))
    torch.testing.assert_close(gathered.float(), whole, rtol=0, atol=0)
    expect_close(product, whole @ b.float())


@pytest.mark.parametrize("key_heads", [16, 8])
@pytest.mark.parametrize("query_slices", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_ulysses_attention_is_that_of_one_rank_with_the_whole_sequence(group, key_heads, query_slices, causal):
    alone = parallel.communicator(group).split(dist.get_rank())
    layer, whole = (
        parallel.UlyssesAttention(
            K, 16, key_heads, group=of, causal=causal, query_slices=slices, device="cuda", dtype=torch.bfloat16
        )
        for of, slices in ((group, query_slices), (alone, 1))
    )
    for weight in layer.parameters():
        dist.broadcast(weight.data, 0)
    whole.load_state_dict(layer.state_dict())
    x, gradient = (draw(96, 3, K) for _ in range(2))

    out = layer(x.requires_grad_())
    of_x, *of_weights = torch.autograd.grad(out, [x, *layer.parameters()], gradient)
    whole_x = torch.cat(of_all(x.detach())).bfloat16().requires_grad_()
    whole_out = whole(whole_x)
    of_whole_x, *of_whole_weights = torch.autograd.grad(
        whole_out, [whole_x, *whole.parameters()], torch.cat(of_all(gradient)).bfloat16()
    )
    expect_close(out.detach(), own(whole_out.detach()).float())
    expect_close(of_x, own(of_whole_x).float())
    for result, reference in zip(of_weights, of_whole_weights, strict=True):
        expect_close(sum(of_all(result)), reference.float())


NORMS = {
    "all_reduce": parallel.matmul_all_reduce_rms_norm,
    "reduce_scatter": parallel.matmul_reduce_scatter_rms_norm,
}


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("m", [M, 1000, 8])
@pytest.mark.parametrize("comm_op", NORMS)
def test_a_norm_of_a_reordered_result_and_its_gradients(group, comm_op, m, has_residual):
    scatters = comm_op == "reduce_scatter"
    x, weight = draw(m, K), draw(N, K)
    norm_weight, residual, gradient, of_next = (draw(*shape) for shape in ((N,), (m, N), (m, N), (m, N)))
    for each in (norm_weight, residual, gradient, of_next):
        dist.broadcast(each, 0)

    def part(tensor):
        return own(tensor) if scatters else tensor

    given = [each.requires_grad_() for each in (x, weight, norm_weight, part(residual).contiguous())]
    x, weight, norm_weight, added = given
    normalized, total_of_rows = NORMS[comm_op](x, weight, norm_weight, group, added if has_residual else None)
    torch.autograd.backward([normalized, total_of_rows], [part(gradient), part(of_next)])

    xs, weights = ([each.requires_grad_() for each in of_all(of.detach())] for of in (x, weight))
    whole_norm_weight, whole_residual = (each.detach().float().requires_grad_() for each in (norm_weight, residual))
    whole = sum(x @ w.t() for x, w in zip(xs, weights)) + (whole_residual if has_residual else 0)
    whole_norm = torch.nn.functional.rms_norm(whole, (N,), whole_norm_weight, 1e-6)
    torch.autograd.backward([whole_norm, whole], [gradient.float(), of_next.float()])
    rank = dist.get_rank()
    expect_close(normalized.detach(), part(whole_norm.detach()))
    expect_close(total_of_rows.detach(), part(whole.detach()))
    expect_close(x.grad, xs[rank].grad)
    expect_close(weight.grad, weights[rank].grad)
    expect_close(sum(of_all(norm_weight.grad)) if scatters else norm_weight.grad, whole_norm_weight.grad)
    if has_residual:
        expect_close(added.grad, part(whole_residual.grad))


def test_a_captured_norm_replays_on_new_inputs(group):
    layer = parallel.OverlapRowParallelLayer(
        K * dist.get_world_size(), N, group=group, device="cuda", dtype=torch.bfloat16
    )
    norm = parallel.ReorderRMSNorm(N, device="cuda", dtype=torch.bfloat16)
    x = draw(M, K)
    with torch.no_grad():
        norm(layer(x))
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = norm(layer(x))
        x.copy_(draw(*x.shape))
        out.fill_(torch.nan)
        graph.replay()
        expect_close(out, norm(layer(x)).float())
    del graph


@pytest.mark.parametrize("is_read_later", [False, True])
@pytest.mark.parametrize(
    "strategy, layout",
    [("signal", "tiled"), ("store", "partial"), ("sequential", "partial"), ("copy", "natural")],
)
def test_operators_whose_results_are_read_by_the_operator(group, strategy, layout, is_read_later):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("gemm_all_reduce", m=1000, n=N, k=K, ranks=dist.get_world_size())
    operator = operator_by(strategy, problem, communicator, layout, is_read_later=is_read_later)
    a, b = draw(1000, K), draw(N, K)
    result = operator.run(a, b)
    stays = layout == "partial" or (is_read_later and strategy == "copy")  # peers have written it
    assert (len(result) == 0) == stays
    expect_close(operator.natural(result), total(a, b))
    expect_close(operator.rms_norm(result, draw(N))[1], total(a, b))
    with pytest.raises(flashoverlap.InvalidArgument, match="shape of result"):
        operator.natural(draw(8, 8))
    with pytest.raises(flashoverlap.InvalidArgument, match="a matrix in host memory: must be on GPU"):
        operator.rms_norm(result, draw(N).cpu())


class TestExperts:
    """Two on each rank, and other routes in every step."""

    experts, tokens, top_k = 2, 512, 2

    def draw_choice(self, tokens):
        """Of experts of all ranks: most tokens choose the first ones."""
        experts = self.experts * dist.get_world_size()
        odds = 0.5 ** torch.arange(experts, device="cuda", dtype=torch.float32)
        chosen = odds.expand(tokens, -1).multinomial(self.top_k) if tokens > 0 else odds.new_empty(0, self.top_k).long()
        return torch.rand(tokens, self.top_k, device="cuda"), chosen

    def gathered(self, tensor, most):
        """The rows of all ranks, of which there are different numbers."""
        padded = tensor.new_zeros(most, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        return torch.cat(of_all(padded))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("is_ragged", [False, True])
    def test_a_mixture_and_its_gradients(self, group, dtype, is_ragged):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        layer = parallel.ExpertParallelMoE(
            K,
            N,
            self.experts * ranks,
            self.top_k,
            group=group,
            max_tokens=self.tokens if is_ragged else None,
            device="cuda",
            dtype=dtype,
        )
        weights = layer.gate_up_weight, layer.down_weight
        whole = [torch.cat(of_all(each.detach())).requires_grad_() for each in weights]
        for step in range(3):
            tokens = self.tokens
            if is_ragged:
                tokens = 0 if ranks > 1 and step == rank else self.tokens - 100 * rank - step
            scores, chosen = self.draw_choice(tokens)
            layer.choose = lambda _, choice=(scores, chosen): choice
            x, gradient = draw(tokens, K, dtype=dtype).requires_grad_(), draw(tokens, K, dtype=dtype)
            layer.zero_grad()
            out = layer(x)
            out.backward(gradient)

            whole_x = self.gathered(x.detach(), self.tokens).requires_grad_()
            all_scores, all_chosen = (self.gathered(each, self.tokens) for each in (scores, chosen))
            expected = torch.zeros_like(whole_x)
            for expert in range(self.experts * ranks):
                gate, up = (whole_x @ whole[0][expert].t()).chunk(2, -1)
                share = (all_scores * (all_chosen == expert)).sum(-1, keepdim=True)
                expected = expected + share * ((torch.nn.functional.silu(gate) * up) @ whole[1][expert].t())
            gradients = torch.autograd.grad(expected, [whole_x, *whole], self.gathered(gradient, self.tokens))
            if tokens > 0:
                for result, reference in ((out.detach(), expected.detach()), (x.grad, gradients[0])):
                    expect_close(result, own(reference)[:tokens])
            for weight, reference in zip(weights, gradients[1:]):
                expect_close(weight.grad, own(reference))

    def test_backward_passes_that_come_later_keep_their_routes(self, group):
        layer = parallel.ExpertParallelMoE(
            K, N, self.experts * dist.get_world_size(), self.top_k, group=group, device="cuda", dtype=torch.bfloat16
        )
        xs = [draw(self.tokens, K).requires_grad_() for _ in range(2)]
        choices = [self.draw_choice(self.tokens) for _ in xs]

        def forward(index):
            layer.choose = lambda _: choices[index]
            return layer(xs[index]).float().sum()

        sums = [forward(index) for index in range(2)]
        for each, x in zip(sums, xs):
            (late,) = torch.autograd.grad(each, x)
            (early,) = torch.autograd.grad(forward(0 if x is xs[0] else 1), x)
            expect_close(late, early.float())

    def test_routes_beyond_the_capacity_are_refused_on_every_rank(self, group):
        ranks = dist.get_world_size()
        layer = parallel.ExpertParallelMoE(
            K, N, self.experts * ranks, 1, group=group, capacity_factor=1, device="cuda", dtype=torch.bfloat16
        )
        x, ones = draw(self.tokens, K), torch.ones(self.tokens, 1, device="cuda")

        def send_to(expert):
            layer.choose = lambda _: (ones, torch.full_like(ones, expert, dtype=torch.int64))
            return layer(x).detach()

        first = send_to(self.experts * dist.get_rank())
        if ranks > 1:
            with pytest.raises(flashoverlap.InvalidArgument, match="rows that rank 0 receives"):
                send_to(0)
        assert torch.equal(send_to(self.experts * dist.get_rank()), first)


@pytest.mark.parametrize("strategy", ["sequential", "copy", "store", "p2p"])
def test_a_has_the_rows_that_routes_send_and_no_more(group, strategy):
    communicator = parallel.communicator(group)
    rank, ranks = communicator.rank, communicator.ranks
    rows = [[128 * (1 + (source + to) % 3) for to in range(ranks)] for source in range(ranks)]
    most = 128 * 3 * ranks
    problem = flashoverlap.Problem(
        "all_to_all_gemm", m=most, n=N, k=K, ranks=ranks, experts=1, expert_rows=rows, capacity=most
    )
    operator = operator_by(strategy, problem, communicator)
    for shift in range(3):
        routes = [each[shift % ranks :] + each[: shift % ranks] for each in rows]
        routes[0][0] -= 100 * (shift == 1)
        if shift == 2 and ranks > 1:
            routes[-1] = [0] * ranks
        operator.route_all(routes) if shift == 1 else operator.route(routes[rank])
        a, b = draw(sum(routes[rank]), K), draw(N, K)
        sent = of_all(torch.cat([a, a.new_zeros(most - len(a), K)]))
        first = [sum(each[:rank]) for each in routes]
        expected = torch.cat([of[at : at + each[rank]] for of, at, each in zip(sent, first, routes)])
        product, received = operator.run_and_gather(a, b)
        expect_close(product, expected @ b.float().t())
        assert torch.equal(received.float(), expected)
    with pytest.raises(flashoverlap.InvalidArgument, match="shape of a"):
        operator.run_and_gather(draw(most + 1, K), b)


def test_what_one_rank_gathers_of_a_wider_matrix(group):
    alone = parallel.communicator(group).split(dist.get_rank())
    a, b = draw(M, 2 * K)[:, :K], draw(N, K)
    operator = flashoverlap.operations.operator_for("all_gather_gemm", a, b, alone)
    product, gathered = operator.run_and_gather(a, b)
    expect_close(product, a.float() @ b.float().t())
    assert torch.equal(gathered, a)


@pytest.mark.parametrize("m", [M, 8])
def test_constant_weights_follow_one_another(group, m):
    """Each product is the input of the next one, which begins right after it."""
    weights = [draw(K, K) for _ in range(4)]
    x = reference = own(draw(m, K * dist.get_world_size()), 1).contiguous()
    for weight in weights:
        x = parallel.matmul_all_reduce(x, weight, group, weight_is_constant=True)
        reference = parallel.matmul_all_reduce(reference, weight, group)
    expect_close(x, reference.float())


def test_strides_of_a_single_row_make_no_new_operators(group):
    communicator = parallel.communicator(group).split(0)
    b = draw(N, K)
    for rows in (1, 2, 3):
        row = draw(1, rows, K)[:, -1]
        expect_close(flashoverlap.gemm_all_reduce(row, b, communicator), total(row, b))
    assert len(communicator.operators) == 1


def test_a_captured_layer_replays_on_new_inputs(group):
    layer = parallel.GatedFeedForward(K, 2 * N, group=group, device="cuda", dtype=torch.bfloat16)
    x = draw(M // dist.get_world_size(), K)
    with torch.no_grad():
        layer(x)
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x)
        for _ in range(3):
            x.copy_(draw(*x.shape))
            out.fill_(torch.nan)
            graph.replay()
            expect_close(out, layer(x).float())
    del graph


def test_a_compiled_layer_is_one_graph(group):
    layer = parallel.GatedFeedForward(K, 2 * N, group=group, device="cuda", dtype=torch.bfloat16)
    x = draw(M // dist.get_world_size(), K)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expect_close(compiled(x).detach(), layer(x).detach().float())


def test_inductor_overlaps_a_compiled_model(group):
    name = group.group_name

    def layers(x, up, down):
        hidden = torch.relu(collectives.all_gather_tensor(x, 0, name) @ up.t())
        return collectives.reduce_scatter_tensor(hidden @ down.t(), "sum", 0, name)

    x, up, down = draw(M // dist.get_world_size(), K), draw(808, K), draw(K, 808)  # of no other test
    expected = layers(x, up, down).float()
    operators = parallel.groups.named(name).operators
    before = len(operators)
    with inductor.patch(post_grad_custom_pre_pass=parallel.OverlapPass()):
        expect_close(torch.compile(layers, fullgraph=True)(x, up, down), expected)
    ran = [operator.problem.operation for operator in list(operators.values())[before:]]
    assert ran == ["all_gather_gemm", "gemm_reduce_scatter"]


def test_sub_groups_of_one_rank(group):
    alone = parallel.communicator(group).split(dist.get_rank())
    a, b = draw(M, K), draw(N, K)
    expect_close(flashoverlap.gemm_reduce_scatter(a, b, alone), a.float() @ b.float().t())


def test_wrong_arguments_are_refused_on_every_rank(group):
    communicator = parallel.communicator(group)
    with pytest.raises(flashoverlap.InvalidArgument, match="columns of b"):
        flashoverlap.gemm_all_reduce(draw(M, K), draw(N, K + 8), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match="a matrix in host memory: must be on GPU"):
        flashoverlap.gemm_all_reduce(draw(M, K).cpu(), draw(N, K).cpu(), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match="fp32"):
        flashoverlap.gemm_all_reduce(draw(M, K).float(), draw(N, K).float(), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match=r"shape of out = \(8, 8\): must be"):
        flashoverlap.gemm_all_reduce(draw(M, K), draw(N, K), communicator, torch.empty(8, 8, device="cuda"))
    expect_close(flashoverlap.gemm_all_reduce(a := draw(M, K), b := draw(N, K), communicator), total(a, b))
