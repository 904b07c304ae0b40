"""RMSNorm of reordered results on ranks of the host, against plain PyTorch on one."""

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
import torch_ranks  # noqa: E402
from torch_ranks import draw, drawn_again, run  # noqa: E402, F401

expect_equal = partial(torch_ranks.expect_equal, atol=1e-3)
RANKS = [1, 2, 4]
M, N, K = 44, 104, 48
EPSILON = 1e-2


def leaves(tensors):
    return [each.clone().requires_grad_() for each in tensors]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("scatters", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("used", ["norm", "sum", "both"])
def test_a_norm_computes_and_learns_what_plain_pytorch_does(ranks, scatters, has_residual, used, draw):
    xs, weights = [draw(M, K) for _ in range(ranks)], [draw(N, K) for _ in range(ranks)]
    norm_weight, residual = draw(N), draw(M, N)
    gradients = [draw(M, N) * (used in (name, "both")) for name in ("norm", "sum")]
    parts = ranks if scatters else 1

    def own(tensor, rank):
        return tensor.chunk(parts)[rank % parts]

    def on_rank(rank, group):
        layer = parallel.OverlapRowParallelLayer(
            K * ranks, N, group=group, comm_op="reduce_scatter" if scatters else "all_reduce"
        )
        norm = parallel.ReorderRMSNorm(N, EPSILON, sequence_parallel=scatters)
        with torch.no_grad():
            layer.weight.copy_(weights[rank])
            norm.weight.copy_(norm_weight)
        x, added = leaves([xs[rank], own(residual, rank)])
        with torch.no_grad():
            alone = norm(layer(x), added if has_residual else None)
        results = layer(x).rms_norm(norm.weight, added if has_residual else None, epsilon=EPSILON)
        assert torch.equal(alone[0] if has_residual else alone, results[0])
        wanted = {"norm": slice(0, 1), "sum": slice(1, 2), "both": slice(2)}[used]
        torch.autograd.backward(results[wanted], [own(each, rank) for each in gradients][wanted])
        assert norm.weight.sequence_parallel == scatters
        return *(each.detach() for each in results), x.grad, layer.weight.grad, norm.weight.grad, added.grad

    results = run(ranks, on_rank)
    xs, weights, (norm_weight, residual) = leaves(xs), leaves(weights), leaves([norm_weight, residual])
    total = sum(x @ w.t() for x, w in zip(xs, weights))
    total = total + residual if has_residual else total
    norm = nn.functional.rms_norm(total, (N,), norm_weight, EPSILON)
    torch.autograd.backward([norm, total], gradients)
    for rank, (normalized, summed, of_x, of_weight, _, of_residual) in enumerate(results):
        expect_equal([normalized, summed], [own(norm, rank), own(total, rank)])
        expect_equal([of_x, of_weight], [xs[rank].grad, weights[rank].grad])
        if has_residual:
            expect_equal([of_residual], [own(residual.grad, rank)])
    of_norm_weights = [each[4] for each in results]
    if used == "sum":
        assert of_norm_weights == [None] * ranks
    elif scatters:
        expect_equal([sum(of_norm_weights)], [norm_weight.grad])
    else:
        expect_equal(of_norm_weights, [norm_weight.grad] * ranks)


@pytest.mark.parametrize("frozen", ["x", "weight"])
@pytest.mark.parametrize("scatters", [False, True])
def test_what_is_frozen_gets_no_gradient(frozen, scatters, draw):
    multiply = parallel.matmul_reduce_scatter_rms_norm if scatters else parallel.matmul_all_reduce_rms_norm

    def on_rank(rank, group):
        x, weight = draw(M, K).requires_grad_(frozen != "x"), draw(N, K).requires_grad_(frozen != "weight")
        normalized, _ = multiply(x, weight, draw(N), group)
        normalized.sum().backward()
        return (x.grad is None) == (frozen == "x") and (weight.grad is None) == (frozen == "weight")

    assert run(2, on_rank) == [True, True]


@pytest.mark.parametrize("scatters", [False, True])
def test_the_promise_of_a_constant_weight_counts_without_gradients(scatters, draw):
    multiply = parallel.matmul_reduce_scatter_rms_norm if scatters else parallel.matmul_all_reduce_rms_norm
    x, weight, norm_weight = draw(M, K), draw(N, K), draw(N)
    residual = draw(M // 2 if scatters else M, N)

    def on_rank(rank, group):
        expected = multiply(x, weight, norm_weight, group, residual)
        promised = multiply(x, weight, norm_weight, group, residual, weight_is_constant=True)
        assert all(map(torch.equal, promised, expected))
        assert len(group.operators) == 2
        added = residual.clone().requires_grad_()
        normalized, _ = multiply(x, weight, norm_weight, group, added, weight_is_constant=True)
        normalized.sum().backward()
        assert added.grad is not None
        assert len(group.operators) == 2

    run(2, on_rank)


def test_a_result_of_few_rows_stays_partial(draw):
    def on_rank(rank, group):
        parallel.matmul_all_reduce_rms_norm(draw(M, K), draw(N, K), draw(N), group)
        return [operator.schedule.layout for operator in group.operators.values()]

    assert run(2, on_rank) == [["partial"]] * 2


@pytest.mark.parametrize("comm_op", ["all_reduce", "reduce_scatter"])
def test_a_result_is_read_without_a_norm(comm_op, draw):
    xs = [draw(6, 2, K) for _ in range(2)]

    def on_rank(rank, group):
        layer = drawn_again(parallel.OverlapRowParallelLayer(2 * K, N, group=group, comm_op=comm_op), draw)
        return layer(xs[rank]).natural().detach(), layer.weight.detach()

    results, weights = zip(*run(2, on_rank))
    total = sum(x @ w.t() for x, w in zip(xs, weights))
    expect_equal(results, total.chunk(2) if comm_op == "reduce_scatter" else [total] * 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype, draw):
    x, weight, norm_weight, residual = (each.to(dtype) for each in (draw(M, K), draw(N, K), draw(N), draw(M, N)))

    def on_rank(rank, group):
        return parallel.matmul_all_reduce_rms_norm(x, weight, norm_weight, group, residual)

    ((normalized, total),) = run(1, on_rank)
    expected = (x.float() @ weight.float().t()).to(dtype).float() + residual.float()
    torch.testing.assert_close(total.float(), expected, rtol=1e-2, atol=1e-2)
    expected = nn.functional.rms_norm(expected, (N,), norm_weight.float(), 1e-6)
    torch.testing.assert_close(normalized.float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_feed_forward_with_residual_and_norm(sequence_parallel, draw):
    ranks, hidden = 2, 64
    gate, up, down, norm_weight = draw(hidden, K), draw(hidden, K), draw(K, hidden), draw(K)
    x, residual, gradient = draw(8, 3, K), draw(8, 3, K), draw(8, 3, K)

    def own(tensor, rank):
        return tensor.chunk(ranks)[rank] if sequence_parallel else tensor

    def on_rank(rank, group):
        layer = parallel.NormedFeedForward(
            K, hidden, group=group, epsilon=EPSILON, sequence_parallel=sequence_parallel
        )
        with torch.no_grad():
            layer.gate_up.weight.copy_(torch.cat([gate.chunk(ranks)[rank], up.chunk(ranks)[rank]]))
            layer.down.weight.copy_(down.chunk(ranks, 1)[rank])
            layer.norm.weight.copy_(norm_weight)
        own_x, own_residual = leaves([own(x, rank), own(residual, rank)])
        normalized, total = layer(own_x, own_residual)
        (normalized * own(gradient, rank) + total).sum().backward()
        return normalized.detach(), total.detach(), own_x.grad, own_residual.grad, layer.down.weight.grad

    results = run(ranks, on_rank)
    gate, up, down, whole_x, residual = leaves([gate, up, down, x, residual])
    total = residual + (nn.functional.silu(whole_x @ gate.t()) * (whole_x @ up.t())) @ down.t()
    normalized = nn.functional.rms_norm(total, (K,), norm_weight, EPSILON)
    (normalized * gradient + total).sum().backward()
    for rank, result in enumerate(results):
        expected = [own(each, rank) for each in (normalized, total, whole_x.grad, residual.grad)]
        expect_equal(result, [*expected, down.grad.chunk(ranks, 1)[rank]])


def test_operations_are_as_torch_compile_expects(draw):
    def on_rank(rank, group):
        name = parallel.groups.name_of(group)
        for operation in ("matmul_all_reduce_rms_norm", "matmul_reduce_scatter_rms_norm"):
            for residual in (None, draw(M, N).requires_grad_()):
                given = leaves([draw(M, K), draw(N, K), draw(N)])
                call = getattr(torch.ops.flashoverlap, operation).default
                torch.library.opcheck(call, (*given, residual, EPSILON, name))

    run(1, on_rank)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_block_is_compiled_as_one_graph(sequence_parallel, draw):
    def on_rank(rank, group):
        layer = parallel.NormedFeedForward(K, 64, group=group, sequence_parallel=sequence_parallel)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        given = leaves([draw(8, 2, K), draw(8, 2, K)])
        expected, result = (
            torch.autograd.grad(sum(out.pow(2).sum() for out in each(*given)), [*given, *layer.parameters()])
            for each in (layer, compiled)
        )
        expect_equal(result, expected)

    run(1, on_rank)


def test_autocast_casts_operands(draw):
    def on_rank(rank, group):
        with torch.autocast("cpu", torch.bfloat16):
            layer = parallel.NormedFeedForward(K, 64, group=group)
            normalized, total = layer(draw(8, K), draw(8, K).double())
        assert normalized.dtype == total.dtype == torch.bfloat16
        normalized.float().sum().backward()
        assert layer.norm.weight.grad.dtype == torch.float32

    run(1, on_rank)


def test_errors_reach_the_caller(draw):
    def on_rank(rank, group):
        multiply = parallel.matmul_all_reduce_rms_norm
        message = rf"shape of norm_weight = \[{N + 8}\]: must be \[{N}\]"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            multiply(draw(M, K), draw(N, K), draw(N + 8), group)
        message = rf"shape of residual = \[{M + 1}, {N}\]: must be \[{M}, {N}\]"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            multiply(draw(M, K), draw(N, K), draw(N), group, draw(M + 1, N))
        message = "data type of norm_weight = torch.bfloat16: must be torch.float32, as of x"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            multiply(draw(M, K), draw(N, K), draw(N).bfloat16(), group)
        message = f"columns of weight = {K + 8}: must be {K}, as x has {K}"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            multiply(draw(M, K), draw(N, K + 8), draw(N), group)
        with pytest.raises(ValueError, match="x: must have 2 dimensions, not 3"):
            multiply(draw(2, M, K), draw(N, K), draw(N), group)
        with pytest.raises(flashoverlap.InvalidArgument, match="epsilon"):
            multiply(draw(M, K), draw(N, K), draw(N), group, epsilon=-1.0)
        with pytest.raises(ValueError, match='comm_op = "gather": must be'):
            parallel.OverlapRowParallelLayer(K, N, group=group, comm_op="gather")
        layer = parallel.OverlapRowParallelLayer(K, N, group=group, comm_op="reduce_scatter")
        with pytest.raises(ValueError, match=r"x.shape\[0\] = 3: must be a multiple of the 2 ranks"):
            layer(draw(3, K // 2))

    run(2, on_rank)


def test_a_residual_of_another_kind_is_refused(draw):
    def on_rank(rank, group):
        layer = parallel.OverlapRowParallelLayer(2 * K, N, group=group, comm_op="all_reduce")
        norm = parallel.ReorderRMSNorm(N)
        with torch.no_grad():
            for residual in (draw(M, N).double(), draw(N)):
                with pytest.raises((TypeError, ValueError, flashoverlap.InvalidArgument)):
                    norm(layer(draw(M, K)), residual)

    run(2, on_rank)


@pytest.mark.parametrize("rows", [69, 71, 80])
def test_a_residual_of_other_rows_is_refused_where_the_operator_has_more(rows, draw, monkeypatch):
    monkeypatch.setattr(flashoverlap.changing_rows, "most_row_counts", 0)

    def on_rank(rank, group):
        with torch.no_grad(), pytest.raises(flashoverlap.InvalidArgument, match="shape of residual = .*70"):
            parallel.matmul_all_reduce_rms_norm(draw(70, K), draw(N, K), draw(N), group, draw(rows, N))

    run(2, on_rank)


@pytest.mark.parametrize("scatters", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
def test_norms_and_gradients_of_results_with_other_numbers_of_rows(has_residual, scatters, draw, monkeypatch):
    monkeypatch.setattr(flashoverlap.changing_rows, "most_row_counts", 2)
    sizes = [2, 66, 80, 90, 102, 66, 128, 130, 258, 254, 90]
    multiply = parallel.matmul_reduce_scatter_rms_norm if scatters else parallel.matmul_all_reduce_rms_norm
    x, weight, norm_weight = {m: draw(m, K) for m in sizes}, draw(N, K), draw(N)
    residual = {m: draw(m, N) for m in sizes}

    def own(tensor, rank):
        return tensor.chunk(2)[rank] if scatters else tensor

    def on_rank(rank, group):
        results = []
        for m in sizes:
            leaf = x[m].clone().requires_grad_()
            added = own(residual[m], rank) if has_residual else None
            normalized, total = multiply(leaf, weight, norm_weight, group, added, epsilon=EPSILON)
            normalized += 1  # in place, as for any result
            normalized.sum().backward()
            results.append((normalized.detach() - 1, total.detach(), leaf.grad))
        made = {operator.problem.m for operator in group.operators.values()}
        assert made >= {66, 80, 96, 160, 384} and 90 not in made
        return results

    of_ranks = run(2, on_rank)
    for place, m in enumerate(sizes):
        leaf = x[m].clone().requires_grad_()
        total = 2 * leaf @ weight.t() + (residual[m] if has_residual else 0)
        normalized = nn.functional.rms_norm(total, (N,), norm_weight, EPSILON)
        normalized.sum().backward()
        for rank in range(2):
            made = of_ranks[rank][place]
            expect_equal(made[:2], [own(normalized.detach(), rank), own(total.detach(), rank)])
            expect_equal([made[2]], [leaf.grad / 2])
