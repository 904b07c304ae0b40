"""PyTorch's autograd: what is refused, what results keep until the backward pass, and what is written in place."""

import functools
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch.autograd import forward_ad  # noqa: E402

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, expect_equal, run  # noqa: E402, F401

M, N, K = 64, 96, 48


def test_transforms_of_functions_are_refused(draw):
    def on_rank(rank, group):
        x = draw(M, K)
        with pytest.raises(RuntimeError, match="functorch"):
            torch.func.grad(lambda w: parallel.all_gather_matmul(x, w, group).sum())(draw(N, K))

    run(1, on_rank)


def tangent_of_one(function, x):
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(x, torch.ones_like(x)))


def tangents_inside_of_a_gradient(function, x):
    """Where PyTorch does not show that x has one."""
    gradient = torch.func.grad(lambda y, x: (function(x) * y).sum())
    return torch.func.jvp(lambda x: gradient(torch.tensor(1.0), x), (x,), (torch.ones_like(x),))


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize(
    "differentiate",
    [
        tangent_of_one,
        tangents_inside_of_a_gradient,
        lambda function, x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
        lambda function, x: torch.func.jacfwd(function)(x),
    ],
    ids=["dual_level", "grad in jvp", "jvp", "jacfwd"],
)
def test_derivatives_by_forward_mode_are_refused(differentiate, needs_gradient, draw):
    def on_rank(rank, group):
        x, weight = draw(K, K), draw(K, K).requires_grad_(needs_gradient)
        norm_weight, name = draw(K), parallel.groups.name_of(group)
        of_pytorchs_schema = torch.ops.flashoverlap
        for function in (
            lambda x: parallel.matmul_all_reduce(x, weight, group),
            lambda x: parallel.all_gather_matmul(weight, x, group, keep_gathered=True),
            lambda x: parallel.copy_matmul(x, weight, group),
            lambda x: parallel.matmul_all_reduce_rms_norm(x, weight, norm_weight, group)[0],
            lambda x: parallel.matmul_reduce_scatter_rms_norm(weight, weight, norm_weight, group, x)[0],
            lambda x: of_pytorchs_schema.fused_matmul_reduce_scatter(x, weight, "sum", 0, name),
            lambda x: of_pytorchs_schema.fused_all_gather_matmul(weight, [x], 0, name, return_A=False)[1][0],
        ):
            with pytest.raises(NotImplementedError, match="tangents of operands"):
                differentiate(function, x)

    run(1, on_rank)


def test_operands_without_tangents_are_no_concern_of_forward_mode(draw):
    def on_rank(rank, group):
        x, weight = draw(M, K), draw(N, K)
        with forward_ad.dual_level():
            return parallel.matmul_all_reduce(x, weight, group) - x @ weight.t()

    expect_equal(run(1, on_rank), [torch.zeros(M, N)])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_computes_one_after_the_other(draw):
    def on_rank(rank, group):
        xs, weight = draw(3, M, K), draw(N, K)
        return torch.func.vmap(lambda x: parallel.matmul_all_reduce(x, weight, group))(xs) - xs @ weight.t()

    expect_equal(run(1, on_rank), [torch.zeros(3, M, N)])


@pytest.mark.parametrize(
    "operation",
    [
        parallel.copy_matmul,
        parallel.matmul_reduce_scatter,
        parallel.all_gather_matmul,
        functools.partial(parallel.all_gather_matmul, keep_gathered=True),
        lambda x, weight, group: parallel.matmul_all_reduce_rms_norm(x, weight, torch.ones(N), group)[0],
        lambda x, weight, group: parallel.matmul_reduce_scatter_rms_norm(x, weight, torch.ones(N), group)[0],
    ],
    ids=["copy", "reduce_scatter", "all_gather", "keep_gathered", "all_reduce_norm", "reduce_scatter_norm"],
)
def test_a_result_keeps_its_communicator_for_the_backward_pass(operation, draw):
    """It alone: nobody else has it any more."""
    x, weight = draw(M, K).requires_grad_(), draw(N, K).requires_grad_()
    (out,) = run(1, lambda rank, group: operation(x, weight, group))
    gc.collect()
    out.sum().backward()
    assert x.grad.shape == (M, K) and weight.grad.shape == (N, K)
    names = set(flashoverlap.operators.communicators)
    del out
    gc.collect()
    assert len(set(flashoverlap.operators.communicators)) == len(names) - 1


@pytest.mark.parametrize("wanted", ["x", "weight"])
@pytest.mark.parametrize(
    "operation",
    [
        parallel.copy_matmul,
        parallel.matmul_all_reduce,
        parallel.matmul_reduce_scatter,
        parallel.all_gather_matmul,
        functools.partial(parallel.all_gather_matmul, keep_gathered=True),
        parallel.sharded_weight_matmul,
        lambda x, weight, group: parallel.matmul_all_reduce_rms_norm(x, weight, torch.ones(N), group)[0],
        lambda x, weight, group: parallel.matmul_reduce_scatter_rms_norm(x, weight, torch.ones(N), group)[0],
    ],
)
def test_what_a_gradient_does_not_need_may_change_before_the_backward_pass(operation, wanted, draw):
    """As with PyTorch's own: a weight may be updated where x needs no gradient."""
    operands = {"x": draw(M, K), "weight": draw(N, K)}
    leaf = operands[wanted].requires_grad_()
    operands[wanted] = leaf * 1
    (expected,) = run(1, lambda rank, group: operation(operands["x"], operands["weight"], group))
    expected.sum().backward()
    gradient, leaf.grad = leaf.grad, None
    operands[wanted] = leaf * 1
    (out,) = run(1, lambda rank, group: operation(operands["x"], operands["weight"], group))
    with torch.no_grad():
        operands[wanted].add_(1)
    out.sum().backward()
    torch.testing.assert_close(leaf.grad, gradient)


def test_a_communicator_that_is_gone_is_named(draw):
    (name,) = run(1, lambda rank, group: group.name)
    gc.collect()
    with pytest.raises(flashoverlap.InvalidArgument, match=f'group = "{name}": must be .* that still exists'):
        torch.ops.flashoverlap.matmul_all_reduce(draw(M, K), draw(N, K), name)


class TestArraysAreWritten:
    """By functions that have no gradients, which PyTorch's autograd is told."""

    def test_what_requires_gradients_is_refused(self, draw):
        def on_rank(rank, group):
            a, b, out = draw(M, K), draw(N, K), torch.zeros(M, N, requires_grad=True)
            with pytest.raises(flashoverlap.InvalidArgument, match="out.requires_grad = True: must be False"):
                flashoverlap.gemm_all_reduce(a, b, group, out)
            assert out.eq(0).all()
            with torch.no_grad():
                flashoverlap.gemm_all_reduce(a, b, group, out)
            expect_equal([out], [a @ b.t()])

        run(1, on_rank)

    @pytest.mark.parametrize("gathers", [False, True])
    def test_a_backward_pass_that_needs_the_values_before_raises(self, gathers, draw):
        def on_rank(rank, group):
            problem = flashoverlap.Problem("all_gather_gemm", m=M, n=N, k=K, ranks=1, data_type="fp32")
            operator = flashoverlap.Operator(problem, group)
            whole, factor = draw(2 * M, N), draw(M, N).requires_grad_()
            out = whole[:M]  # a part shares the memory, and what PyTorch knows of it
            product = factor * whole[:M]
            (operator.run_and_gather if gathers else operator.run)(draw(M, K), draw(N, K), out)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()

        run(1, on_rank)

    def test_a_tensor_of_inference_is_written(self, draw):
        def on_rank(rank, group):
            a, b = draw(M, K), draw(N, K)
            with torch.inference_mode():
                out = torch.zeros(M, N)
            return flashoverlap.gemm_all_reduce(a, b, group, out) - a @ b.t()

        expect_equal(run(1, on_rank), [torch.zeros(M, N)])

    def test_results_require_no_gradients(self, draw):
        def on_rank(rank, group):
            return flashoverlap.gemm_all_reduce(draw(M, K).requires_grad_(), draw(N, K), group).requires_grad

        assert run(1, on_rank) == [False]


def test_what_was_compiled_keeps_no_communicator(draw):
    left = []

    def on_rank(rank, group):
        layer = parallel.ColumnParallelLinear(K, N, group=group, bias=False)
        torch.compile(layer, fullgraph=True, backend="aot_eager")(draw(M, K)).sum().backward()
        left.append(weakref.ref(group))

    run(2, on_rank)
    gc.collect()
    assert [group() for group in left] == [None, None]
