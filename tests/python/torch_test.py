"""PyTorch: operations, gradients and layers on ranks of the host, against plain PyTorch on one."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import Block, draw, expect_equal, run  # noqa: E402, F401

RANKS = [1, 2, 4]
M, N, K = 64, 96, 48


def with_gradients(operation, x, weight, gradient, group):
    """The result and the gradients of x and weight."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = operation(x, weight, group)
    out.backward(gradient)
    return out.detach(), x.grad, weight.grad


@pytest.mark.parametrize("ranks", RANKS)
class TestGradients:
    """Of a function of all ranks' matrices, as one process computes it."""

    def compare(self, ranks, operation, reference, xs, weights, gradients):
        results = run(
            ranks,
            lambda rank, group: with_gradients(operation, xs[rank], weights[rank], gradients[rank], group),
        )
        xs = [each.clone().requires_grad_() for each in xs]
        weights = [each.clone().requires_grad_() for each in weights]
        outs = reference(xs, weights)
        torch.autograd.backward(outs, gradients)
        for result, *expected in zip(results, outs, [x.grad for x in xs], [w.grad for w in weights]):
            expect_equal(result, expected)

    def test_of_matmul_reduce_scatter(self, ranks, draw):
        self.compare(
            ranks,
            parallel.matmul_reduce_scatter,
            lambda xs, weights: sum(x @ w.t() for x, w in zip(xs, weights)).chunk(ranks),
            [draw(M, K) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(M // ranks, N) for _ in range(ranks)],
        )

    @pytest.mark.parametrize("keep_gathered", [True, False])
    def test_of_all_gather_matmul(self, ranks, keep_gathered, draw):
        self.compare(
            ranks,
            functools.partial(parallel.all_gather_matmul, keep_gathered=keep_gathered),
            lambda xs, weights: [torch.cat(xs) @ w.t() for w in weights],
            [draw(M // ranks, K) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(M, N) for _ in range(ranks)],
        )

    def test_of_sharded_weight_matmul(self, ranks, draw):
        self.compare(
            ranks,
            parallel.sharded_weight_matmul,
            lambda xs, weights: [x @ torch.cat(weights).t() for x in xs],
            [draw(M, K) for _ in range(ranks)],
            [draw(N // ranks, K) for _ in range(ranks)],
            [draw(M, N) for _ in range(ranks)],
        )

    def test_of_one_row_on_each_rank(self, ranks, draw):
        self.compare(
            ranks,
            parallel.matmul_reduce_scatter,
            lambda xs, weights: sum(x @ w.t() for x, w in zip(xs, weights)).chunk(ranks),
            [draw(ranks, K) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(1, N) for _ in range(ranks)],
        )
        self.compare(
            ranks,
            parallel.all_gather_matmul,
            lambda xs, weights: [torch.cat(xs) @ w.t() for w in weights],
            [draw(1, K) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(ranks, N) for _ in range(ranks)],
        )
        self.compare(
            ranks,
            parallel.sharded_weight_matmul,
            lambda xs, weights: [x @ torch.cat(weights).t() for x in xs],
            [draw(M, K) for _ in range(ranks)],
            [draw(1, K) for _ in range(ranks)],
            [draw(M, ranks) for _ in range(ranks)],
        )

    def test_of_a_frozen_input_with_one_row_on_each_rank(self, ranks, draw):
        xs, weights = [draw(ranks, K) for _ in range(ranks)], [draw(N, K) for _ in range(ranks)]
        gradients = [draw(1, N) for _ in range(ranks)]

        def on_rank(rank, group):
            weight = weights[rank].clone().requires_grad_()
            parallel.matmul_reduce_scatter(xs[rank], weight, group).backward(gradients[rank])
            return weight.grad

        expect_equal(run(ranks, on_rank), [torch.cat(gradients).t() @ x for x in xs])

    def test_of_matmul_all_reduce_whose_gradient_is_the_same_on_all_ranks(self, ranks, draw):
        xs, weights = [draw(M, K) for _ in range(ranks)], [draw(N, K) for _ in range(ranks)]
        gradient = draw(M, N)
        results = run(
            ranks,
            lambda rank, group: with_gradients(
                parallel.matmul_all_reduce, xs[rank], weights[rank], gradient, group
            ),
        )
        total = sum(x @ w.t() for x, w in zip(xs, weights))
        for result, x, weight in zip(results, xs, weights, strict=True):
            expect_equal(result, [total, gradient @ weight, gradient.t() @ x])

    def test_of_copy_matmul_whose_input_is_the_same_on_all_ranks(self, ranks, draw):
        x, weights = draw(M, K), [draw(N, K) for _ in range(ranks)]
        gradients = [draw(M, N) for _ in range(ranks)]
        results = run(
            ranks,
            lambda rank, group: with_gradients(parallel.copy_matmul, x, weights[rank], gradients[rank], group),
        )
        gradient_of_x = sum(g @ w for g, w in zip(gradients, weights))
        for result, weight, gradient in zip(results, weights, gradients, strict=True):
            expect_equal(result, [x @ weight.t(), gradient_of_x, gradient.t() @ x])


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_gated_feed_forward_is_that_of_its_parts(sequence_parallel, draw):
    ranks = 2
    gate, up, down = draw(N, K), draw(N, K), draw(K, N)
    x = draw(M, K)

    def on_rank(rank, group):
        layer = parallel.GatedFeedForward(K, N, group=group, sequence_parallel=sequence_parallel)
        with torch.no_grad():
            layer.gate_up.weight.copy_(torch.cat([gate.chunk(ranks)[rank], up.chunk(ranks)[rank]]))
            layer.down.weight.copy_(down.chunk(ranks, 1)[rank])
            return layer(x.chunk(ranks)[rank] if sequence_parallel else x)

    expected = (nn.functional.silu(x @ gate.t()) * (x @ up.t())) @ down.t()
    expect_equal(run(ranks, on_rank), expected.chunk(ranks) if sequence_parallel else [expected] * ranks)


@pytest.mark.parametrize("operation", [parallel.matmul_all_reduce, parallel.matmul_reduce_scatter])
def test_results_of_rounded_numbers_of_rows_can_be_changed_in_place(operation, draw, monkeypatch):
    monkeypatch.setattr(flashoverlap.changing_rows, "most_row_counts", 0)
    x, weight = draw(70, K), draw(N, K)

    def on_rank(rank, group):
        leaf = x.clone().requires_grad_()
        out = operation(leaf, weight, group)
        out += 1
        out.sum().backward()
        assert [operator.problem.m for operator in group.operators.values() if operator.problem.n == N] == [96]
        return leaf.grad

    expected = weight.sum(0).expand(70, -1)
    expect_equal(run(2, on_rank), [expected, expected])


@pytest.mark.parametrize("shape", [(6,), (M, 2 * N), (3, 4, 6)])
def test_swiglu_multiplies_the_second_half_by_silu_of_the_first(shape, draw):
    gate_up = draw(*shape).requires_grad_()
    gate, up = gate_up.chunk(2, -1)
    expected = gate / (1 + torch.exp(-gate)) * up
    hidden = parallel.swiglu(gate_up)
    torch.testing.assert_close(hidden, expected)
    gradient = draw(*hidden.shape)
    torch.testing.assert_close(
        *(torch.autograd.grad(each, gate_up, gradient, retain_graph=True)[0] for each in (hidden, expected))
    )


@pytest.mark.parametrize("shape", [(), (3,), (4, 7)])
def test_swiglu_refuses_features_that_it_cannot_halve(shape):
    with pytest.raises(ValueError, match="must have an even last dimension"):
        parallel.swiglu(torch.ones(shape))


def test_a_layer_returns_its_bias_where_that_is_asked_for(draw):
    def on_rank(rank, group):
        layer = parallel.RowParallelLinear(K, N, group=group, skip_bias_add=True)
        out, bias = layer(draw(M, K // 2))
        assert bias is layer.bias and out.shape == (M // 2, N)

    run(2, on_rank)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("keep_gathered", [True, False])
def test_the_backward_pass_gathers_once_more_only_if_the_forward_pass_has_not_kept_it(keep_gathered, compiled, draw):
    x, weight = draw(M, K), draw(N, K)

    def on_rank(rank, group):
        layer = parallel.ColumnParallelLinear(K, 2 * N, group=group, bias=False)
        layer.keep_gathered = keep_gathered
        call = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
        call(x).sum().backward()
        gathered = {operator.problem.gathered for operator in group.operators.values()}
        return gathered == {"a"} if keep_gathered else gathered == {"a", "b"}

    assert run(2, on_rank) == [True, True]


@pytest.mark.parametrize("keep_gathered", [True, False])
def test_nothing_is_kept_for_a_frozen_weight(keep_gathered, draw):
    def on_rank(rank, group):
        x = draw(M, K).requires_grad_()
        out = parallel.all_gather_matmul(x, draw(N, K), group, keep_gathered=keep_gathered)
        return out.grad_fn.saved_tensors[0]

    assert run(2, on_rank) == [None, None]


def test_operations_are_as_torch_compile_expects(draw):
    """PyTorch's own check: schema, fake tensors, and autograd under tracing."""

    def on_rank(rank, group):
        name = parallel.groups.name_of(group)
        for operation in (
            "matmul_reduce_scatter",
            "matmul_all_reduce",
            "all_gather_matmul",
            "all_gather_matmul_and_gathered",
            "sharded_weight_matmul",
        ):
            x, weight = draw(M, K).requires_grad_(), draw(N, K).requires_grad_()
            torch.library.opcheck(getattr(torch.ops.flashoverlap, operation).default, (x, weight, name))

    run(1, on_rank)


def test_without_gradients_the_result_is_the_same(draw):
    """An operation is then called directly, and by PyTorch where a mode wants to see it."""
    x, weight = draw(M, K), draw(N, K)

    def on_rank(rank, group):
        return [
            operation(x.clone().requires_grad_(needed), weight, group).detach()
            for operation in (parallel.matmul_reduce_scatter, parallel.all_gather_matmul)
            for needed in (False, True)
        ]

    for direct, dispatched, direct_gathered, dispatched_gathered in run(2, on_rank):
        assert torch.equal(direct, dispatched)
        assert torch.equal(direct_gathered, dispatched_gathered)

    def fake(rank, group):
        with torch._subclasses.FakeTensorMode() as mode:
            out = parallel.all_gather_matmul(mode.from_tensor(x), mode.from_tensor(weight), group)
        assert out.shape == (M, N) and isinstance(out, torch._subclasses.FakeTensor)

    run(1, fake)


def test_the_promise_of_a_constant_weight_counts_where_nothing_writes_it(draw):
    """Not with gradients, nor where autocast writes a weight of another type right before."""
    x, weight = draw(M, K), draw(N, K)

    def on_rank(rank, group):
        operations = (parallel.matmul_all_reduce, parallel.matmul_reduce_scatter, parallel.all_gather_matmul)
        for operation in operations:
            expected = operation(x, weight, group)
            assert torch.equal(operation(x, weight, group, weight_is_constant=True), expected)
        assert len(group.operators) == 2 * len(operations)
        out = parallel.matmul_all_reduce(x, weight.clone().requires_grad_(), group, weight_is_constant=True)
        out.sum().backward()
        with torch.autocast("cpu", torch.bfloat16):
            promised = parallel.matmul_all_reduce(x, weight, group, weight_is_constant=True)
            assert torch.equal(promised, parallel.matmul_all_reduce(x, weight, group))
        assert len(group.operators) == 2 * len(operations) + 1

    run(2, on_rank)


@pytest.mark.parametrize(
    "operation", ["matmul_reduce_scatter", "matmul_all_reduce", "all_gather_matmul", "all_to_all_matmul"]
)
def test_second_derivatives_are_refused(operation, draw):
    def on_rank(rank, group):
        x, weight = draw(M, K).requires_grad_(), draw(N, K).requires_grad_()
        out = getattr(parallel, operation)(x, weight, group)
        (of_x,) = torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            of_x.sum().backward()

    run(1, on_rank)


@pytest.mark.parametrize("operation", ["matmul_all_reduce", "all_gather_matmul"])
def test_second_derivatives_are_refused_where_the_incoming_gradient_has_none(operation, draw):
    def on_rank(rank, group):
        x, weight = draw(M, K).requires_grad_(), draw(N, K).requires_grad_()
        for compute in (getattr(parallel, operation), getattr(torch.ops.flashoverlap, operation)):
            out = compute(x, weight, group if compute is getattr(parallel, operation) else group.name)
            (of_x,) = torch.autograd.grad(out.sum(), x, create_graph=True)  # depends on weight
            with pytest.raises(RuntimeError, match="differentiate twice"):
                of_x.pow(2).sum().backward()
        (of_x,) = torch.autograd.grad(
            getattr(parallel, operation)(x, weight.detach(), group).sum(), x, create_graph=True
        )
        assert not of_x.requires_grad  # depends on nothing

    run(1, on_rank)


def test_negative_views_are_negative(draw):
    def on_rank(rank, group):
        x, weight = torch.complex(draw(1, K), draw(1, K)).conj().imag, draw(N, K)
        assert x.is_neg()
        torch.testing.assert_close(parallel.matmul_all_reduce(x, weight, group), x @ weight.t())

    run(1, on_rank)


def test_shapes_are_known_without_data(draw):
    def on_rank(rank, group):
        x, weight = torch.empty(M, K, device="meta"), torch.empty(N, K, device="meta")
        out = parallel.matmul_all_reduce(x, weight, group)
        assert (out.device.type, out.shape) == ("meta", (M, N))

    run(1, on_rank)


@pytest.mark.parametrize("group", [None, 3])
def test_what_is_no_group_is_named(group, draw):
    with pytest.raises(TypeError, match=f"group = {group}: must be"):
        parallel.matmul_all_reduce(draw(M, K), draw(N, K), group)
    with pytest.raises(TypeError, match=f"group = {group}: must be"):
        parallel.RowParallelLinear(K, N, group=group)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_autocast_casts_operands(needs_gradient, draw):
    def on_rank(rank, group):
        x, weight = draw(M, K), draw(N, K).requires_grad_(needs_gradient)
        square = draw(K, K).requires_grad_(needs_gradient)
        with torch.autocast("cpu", torch.bfloat16):
            for operation in ("matmul_all_reduce", "all_gather_matmul", "copy_matmul", "matmul_all_to_all"):
                out = getattr(parallel, operation)(x, weight, group)
                torch.testing.assert_close(out, nn.functional.linear(x, weight))
                assert out.dtype == torch.bfloat16
            assert parallel.all_to_all_matmul(x, square, group).dtype == torch.bfloat16
            layer = parallel.ColumnParallelLinear(K, N, group=group)
            assert layer(x).dtype == torch.bfloat16
        if needs_gradient:
            out.float().sum().backward()
            assert weight.grad.dtype == torch.float32

    run(1, on_rank)


def test_tensors_without_memory_are_refused(draw):
    def on_rank(rank, group):
        with torch._subclasses.FakeTensorMode() as mode:
            fake = mode.from_tensor(draw(M, K))
        with pytest.raises(TypeError, match="a: must have memory"):
            flashoverlap.gemm_all_reduce(fake, draw(N, K), group)

    run(1, on_rank)


@pytest.mark.parametrize(
    "made, kind",
    [
        (lambda matrix: matrix.to("meta"), "meta"),
        (lambda matrix: matrix.to_sparse(), "sparse_coo"),
    ],
)
def test_tensors_that_show_no_dense_memory_are_refused_in_one_line(made, kind, draw):
    rule = f"must be dense, in the memory of a CPU or GPU, not {kind}"
    problem = flashoverlap.Problem("gemm_all_reduce", m=M, n=N, k=K, ranks=1, data_type="fp32")

    def on_rank(rank, group):
        a, b, wrong = draw(M, K), draw(N, K), made(draw(M, K))
        with pytest.raises(TypeError, match=f"^a: {rule}$"):
            flashoverlap.gemm_all_reduce(wrong, b, group)
        with pytest.raises(TypeError, match=f"^b: {rule}$"):
            flashoverlap.gemm_all_reduce(a, wrong, group)
        with pytest.raises(TypeError, match=f"^rank 0: a: {rule}$"):
            flashoverlap.Operator(problem, group).run(wrong, b, torch.empty(M, N))

    run(1, on_rank)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "matmul_all_reduce",
        "matmul_reduce_scatter",
        "all_gather_matmul",
        "sharded_weight_matmul",
        "matmul_all_to_all",
        "all_to_all_matmul",
    ],
)
def test_refusals_name_operands_as_the_caller_does(name, needs_gradient, draw):
    multiply = getattr(parallel, name)

    def matrix(*shape, **options):
        return draw(*shape).to(**options).requires_grad_(needs_gradient)

    def on_rank(rank, group):
        for wrong, error, message in (
            (draw(2, 4, K), ValueError, "must have 2 dimensions, not 3"),
            (draw(M, K).int(), TypeError, "= int32: must be bfloat16, float16 or float32"),
            (draw(M, K).to_sparse(), TypeError, "must be dense, in the memory of a CPU or GPU, not sparse.*"),
        ):
            for place, operand in enumerate(("x", "weight")):
                operands = [matrix(M, K), matrix(M, K)]
                operands[place] = wrong
                with pytest.raises(error, match=rf"^(data type of )?{operand}:? {message}$"):
                    multiply(*operands, group)
        message = "data type of weight = fp16: must be that of x, fp32"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            multiply(matrix(M, K), matrix(M, K, dtype=torch.float16), group)
        with pytest.raises(flashoverlap.InvalidArgument, match=r"strides of x = \(144, 3\): must be 1"):
            multiply(matrix(M, 3 * K)[:, ::3], matrix(M, K), group)
        with pytest.raises((flashoverlap.InvalidArgument, ValueError), match="columns of (x|weight)"):
            multiply(matrix(M, K), matrix(M, K + 8), group)

    run(2, on_rank)


def test_operations_share_operators_with_those_of_the_package(draw):
    x, weight = draw(M, K), draw(N, K)

    def on_rank(rank, group):
        for name, package in (
            ("matmul_all_reduce", flashoverlap.gemm_all_reduce),
            ("matmul_reduce_scatter", flashoverlap.gemm_reduce_scatter),
            ("all_gather_matmul", flashoverlap.all_gather_gemm),
            ("sharded_weight_matmul", functools.partial(flashoverlap.all_gather_gemm, gathered="b")),
            ("matmul_all_to_all", flashoverlap.gemm_all_to_all),
            ("all_to_all_matmul", flashoverlap.all_to_all_gemm),
        ):
            own = x[:, : K // 2] if name == "all_to_all_matmul" else x
            assert torch.equal(getattr(parallel, name)(own, weight, group), package(own, weight, group))
        return len(group.operators)

    assert run(2, on_rank) == [6, 6]


@pytest.mark.parametrize("keep_gathered", [False, True])
def test_refusals_name_the_weight_whether_or_not_rows_that_are_gathered_are_kept(keep_gathered, draw):
    def on_rank(rank, group):
        weight = draw(N, 2 * K)[:, ::2].requires_grad_()
        with pytest.raises(flashoverlap.InvalidArgument, match="strides of weight"):
            parallel.all_gather_matmul(draw(M, K), weight, group, keep_gathered=keep_gathered)

    run(2, on_rank)


def test_an_operand_on_another_device_is_named(draw):
    def on_rank(rank, group):
        x, weight = draw(M, K), draw(N, K).to("meta")
        message = "device of weight = meta: must be cpu, the group's"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            parallel.matmul_all_reduce(x, weight, group)

    run(1, on_rank)


def test_a_function_is_compiled_with_a_communicator(draw):
    def on_rank(rank, group):
        x, weight = draw(M, K), draw(N, K)
        compiled = torch.compile(
            lambda x, weight: parallel.matmul_reduce_scatter(x, weight, group), fullgraph=True, backend="aot_eager"
        )
        expect_equal([compiled(x, weight)], [x @ weight.t()])

    run(1, on_rank)


@pytest.mark.parametrize("layer", [parallel.ColumnParallelLinear, parallel.RowParallelLinear])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_layer_takes_its_own_number_of_features_alone(layer, sequence_parallel, rows, draw):
    """Also of one row, whose strides could be those of a part of k."""

    def on_rank(rank, group):
        divided = layer(16, 8, group=group, sequence_parallel=sequence_parallel)
        own = divided.weight.shape[1]
        for features in (own // 2, 2 * own):
            with torch.no_grad(), pytest.raises(ValueError, match=rf"shape\[-1\] = {features}: must be {own}, as of"):
                divided(draw(rows, features))

    run(2, on_rank)


def test_a_layer_is_compiled_as_one_graph(draw):
    def on_rank(rank, group):
        layer = parallel.GatedFeedForward(K, N, group=group)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        x = draw(M, K).requires_grad_()
        expected = torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
        expect_equal(torch.autograd.grad(compiled(x).sum(), [x, *layer.parameters()]), expected)

    run(1, on_rank)


def test_errors_reach_the_caller(draw):
    def on_rank(rank, group):
        message = f"columns of weight = {K + 8}: must be {K}, as x has {K}"
        with pytest.raises(flashoverlap.InvalidArgument, match=message):
            parallel.matmul_reduce_scatter(draw(M, K), draw(N, K + 8), group)
        with pytest.raises(ValueError, match="is the name of no linear layer"):
            parallel.parallelize(Block(K, N), group, {"sideways": "column"})
        with pytest.raises(ValueError, match="x must have at least 2 dimensions, not 1"):
            parallel.RowParallelLinear(K, N, group=group)(draw(K // 2))
        with pytest.raises(ValueError, match=r"x.shape\[0\] = 3: must be a multiple of the 2 ranks"):
            parallel.RowParallelLinear(K, N, group=group)(draw(3, 2, K // 2))
        name = parallel.groups.name_of(group)
        with pytest.raises(ValueError, match="dimension 1 of 2: must be one before the last"):
            torch.ops.flashoverlap.fused_all_gather_matmul(draw(K // 2, K // 2), [draw(K, N)], 1, name)
        with pytest.raises(ValueError, match="out_features = 97: must be a multiple of the 2 ranks"):
            parallel.ColumnParallelLinear(K, 97, group=group)

    run(2, on_rank)


@pytest.mark.parametrize("name", ["all_gather_matmul", "sharded_weight_matmul"])
def test_what_is_gathered_by_columns_has_no_gradient(name, draw):
    def on_rank(rank, group):
        parts = (draw(K // 2, 8).t(), draw(16, K)) if name == "all_gather_matmul" else (draw(8, K), draw(K // 2, 16).t())
        getattr(parallel, name)(*parts, group)
        with pytest.raises(ValueError, match="must be equal where gradients are wanted"):
            getattr(parallel, name)(parts[0].requires_grad_(), parts[1], group)

    run(2, on_rank)


def test_autocast_leaves_fp64_as_it_is(draw):
    def on_rank(rank, group):
        with torch.autocast("cpu", torch.bfloat16):
            product = parallel.copy_matmul(draw(8, K).double(), draw(16, K).double(), group)
        assert product.dtype == torch.float64

    run(1, on_rank)
