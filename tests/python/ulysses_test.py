"""All-to-alls with gradients and attention by Ulysses, on ranks of the host, against plain PyTorch on one."""

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
import torch_ranks  # noqa: E402
from torch_ranks import draw, run  # noqa: E402, F401

expect_equal = partial(torch_ranks.expect_equal, atol=1e-3)
RANKS = [1, 2, 4]
M, N, K = 40, 96, 48  # of each rank


def to_heads(matrices):
    """Each rank's columns of the rows of all."""
    return [torch.cat(columns) for columns in zip(*(each.chunk(len(matrices), 1) for each in matrices))]


def to_sequence(matrices):
    """All columns of each rank's rows."""
    return [torch.cat(rows, 1) for rows in zip(*(each.chunk(len(matrices)) for each in matrices))]


def products(xs, weights):
    return [x @ weight.t() for x, weight in zip(xs, weights)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("wanted", ["x", "weight", "both"])
class TestGradients:
    """Of a function of all ranks' matrices, as one process computes it."""

    def compare(self, wanted, operation, reference, xs, weights, gradients):
        def leaves(x, weight):
            return [
                x.clone().requires_grad_(wanted != "weight"),
                weight.clone().requires_grad_(wanted != "x"),
            ]

        def on_rank(rank, group):
            x, weight = leaves(xs[rank], weights[rank])
            out = operation(x, weight, group)
            out.backward(gradients[rank])
            return out.detach(), x.grad, weight.grad

        results = run(len(xs), on_rank)
        xs, weights = zip(*map(leaves, xs, weights))
        outs = reference(xs, weights)
        torch.autograd.backward(outs, gradients)
        for result, out, x, weight in zip(results, outs, xs, weights, strict=True):
            expect_equal(result, [out.detach(), x.grad, weight.grad])

    def test_of_matmul_all_to_all(self, ranks, wanted, draw):
        self.compare(
            wanted,
            parallel.matmul_all_to_all,
            lambda xs, weights: to_heads(products(xs, weights)),
            [draw(M, K) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(ranks * M, N // ranks) for _ in range(ranks)],
        )

    def test_of_all_to_all_matmul(self, ranks, wanted, draw):
        self.compare(
            wanted,
            parallel.all_to_all_matmul,
            lambda xs, weights: products(to_sequence(xs), weights),
            [draw(ranks * M, K // ranks) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(M, N) for _ in range(ranks)],
        )

    def test_of_all_to_all_matmul_that_has_not_kept_what_it_exchanged(self, ranks, wanted, draw):
        def operation(x, weight, group):
            return torch.ops.flashoverlap.all_to_all_matmul(x, weight, parallel.groups.name_of(group))

        self.compare(
            wanted,
            operation,
            lambda xs, weights: products(to_sequence(xs), weights),
            [draw(ranks * M, K // ranks) for _ in range(ranks)],
            [draw(N, K) for _ in range(ranks)],
            [draw(M, N) for _ in range(ranks)],
        )


@pytest.mark.parametrize("ranks", RANKS)
def test_without_gradients_the_results_are_the_same(ranks, draw):
    xs, weights = [draw(M, K) for _ in range(ranks)], [draw(N, K) for _ in range(ranks)]
    backs = [draw(K, N) for _ in range(ranks)]

    def on_rank(rank, group):
        sent = parallel.matmul_all_to_all(xs[rank], weights[rank], group)
        return sent, parallel.all_to_all_matmul(sent, backs[rank], group)

    expected = products(xs, weights)
    for result, *reference in zip(run(ranks, on_rank), to_heads(expected), products(expected, backs)):
        expect_equal(result, reference)


def test_operations_are_as_torch_compile_expects(draw):
    """PyTorch's own check: schema, fake tensors, and autograd under tracing."""

    def on_rank(rank, group):
        name = parallel.groups.name_of(group)
        for operation in ("matmul_all_to_all", "all_to_all_matmul", "all_to_all_matmul_and_exchanged"):
            x, weight = draw(M, K).requires_grad_(), draw(N, K).requires_grad_()
            torch.library.opcheck(getattr(torch.ops.flashoverlap, operation).default, (x, weight, name))
        gradient, x, weight = draw(M, N), draw(M, K), draw(N, K)
        torch.library.opcheck(torch.ops.flashoverlap.matmul_all_to_all_gradients.default, (gradient, x, weight, name))

    run(1, on_rank)


@pytest.mark.parametrize("ranks", RANKS)
def test_fake_results_have_the_shapes_of_real_ones(ranks, draw):
    def on_rank(rank, group):
        x, weight, back = draw(M, K), draw(N, K), draw(K, N)
        with torch._subclasses.FakeTensorMode() as mode:
            sent = parallel.matmul_all_to_all(mode.from_tensor(x), mode.from_tensor(weight), group)
            returned = parallel.all_to_all_matmul(sent, mode.from_tensor(back), group)
        assert sent.shape == (ranks * M, N // ranks) and returned.shape == (M, K)

    run(ranks, on_rank)


def plain_attention(x, qkv_weight, out_weight, heads, key_heads, causal):
    """x[sequence, batch, features], a head at a time."""
    features = out_weight.shape[1] // heads
    per_key = heads // key_heads
    hidden = torch.full((x.shape[0], x.shape[0]), causal).triu(1)
    parts = (x @ qkv_weight.t()).split(features, -1)
    attended = []
    for key_head in range(key_heads):
        *queries, key, value = parts[key_head * (per_key + 2) : (key_head + 1) * (per_key + 2)]
        for query in queries:
            scores = torch.einsum("sbf,tbf->bst", query, key) / features**0.5
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            attended.append(torch.einsum("bst,tbf->sbf", weights, value))
    return torch.cat(attended, -1) @ out_weight.t()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads, key_heads, head_features", [(4, None, None), (8, 4, 8)])
@pytest.mark.parametrize("query_slices", [1, 3, 8])
def test_attention_computes_and_learns_what_that_of_one_process_does(
    ranks, causal, heads, key_heads, head_features, query_slices, draw
):
    sequence, batch = 7 * ranks, 3
    x, gradient = draw(sequence, batch, K), draw(sequence, batch, K)
    columns = heads * (head_features or K // heads)
    qkv_weight = draw(columns + 2 * columns * (key_heads or heads) // heads, K)
    out_weight = draw(K, columns)

    def on_rank(rank, group):
        layer = parallel.UlyssesAttention(
            K, heads, key_heads, head_features, group=group, causal=causal, query_slices=query_slices
        )
        with torch.no_grad():
            layer.qkv_weight.copy_(qkv_weight)
            layer.out_weight.copy_(out_weight)
            own = x.chunk(ranks)[rank].clone()
            alone = layer(own)
        own.requires_grad_()
        out = layer(own)
        out.backward(gradient.chunk(ranks)[rank])
        assert torch.equal(out, alone)
        return out.detach(), own.grad, layer.qkv_weight.grad, layer.out_weight.grad

    outs, gradients, *of_weights = zip(*run(ranks, on_rank))
    for each in (x, qkv_weight, out_weight):
        each.requires_grad_()
    expected = plain_attention(x, qkv_weight, out_weight, heads, key_heads or heads, causal)
    expected.backward(gradient)
    expect_equal(
        [torch.cat(outs), torch.cat(gradients), *map(sum, of_weights)],
        [expected.detach(), x.grad, qkv_weight.grad, out_weight.grad],
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("slices, exchanged", [(1, [7]), (3, [2, 2, 3]), (8, [1] * 7)])
def test_slices_are_exchanged_one_after_the_other(slices, exchanged, causal, draw, monkeypatch):
    """Each after its own attention and before that of the next, which sees no keys in vain."""
    ranks, calls = 2, []
    multiply = parallel.ulysses.all_to_all_matmul

    class Watched(parallel.UlyssesAttention):
        def attend(self, query, key, value):
            if self.group.rank == 0:
                calls.append(("attend", query.shape[2], key.shape[2]))
            return super().attend(query, key, value)

    def watched(rows, weight, group):
        if group == names[0]:
            calls.append(("exchange", len(rows) // ranks))
        return multiply(rows, weight, group)

    names = {}
    monkeypatch.setattr(parallel.ulysses, "all_to_all_matmul", watched)

    def on_rank(rank, group):
        names[rank] = group.name
        Watched(K, 4, group=group, causal=causal, query_slices=slices)(draw(7, 1, K))

    run(ranks, on_rank)
    assert [call[1] for call in calls if call[0] == "exchange"] == exchanged
    if slices == 3:
        seen = [2, 9, 4, 11, 7, 14] if causal else [14] * 6
        expected = [
            ("attend", 2, seen[0]),
            ("attend", 2, seen[1]),
            ("exchange", 2),
            ("attend", 2, seen[2]),
            ("attend", 2, seen[3]),
            ("exchange", 2),
            ("attend", 3, seen[4]),
            ("attend", 3, seen[5]),
            ("exchange", 3),
        ]
        assert calls == expected


@pytest.mark.parametrize("query_slices", [1, 2])
def test_queries_and_keys_are_rotated_by_their_positions(query_slices, draw):
    class Rotated(parallel.UlyssesAttention):
        def rotate(self, query, key):
            angles = torch.arange(query.shape[2])[:, None] / 10
            return query * angles.cos(), key * angles.cos()

    x, weights = draw(12, 2, K), [draw(3 * K, K), draw(K, K)]

    def on_rank(rank, group, slices):
        layer = Rotated(K, 4, group=group, query_slices=slices)
        with torch.no_grad():
            for weight, value in zip(layer.parameters(), weights, strict=True):
                weight.copy_(value)
        return layer(x.chunk(group.ranks)[rank]).detach()

    (expected,) = run(1, lambda rank, group: on_rank(rank, group, 1))
    expect_equal(run(2, lambda rank, group: on_rank(rank, group, query_slices)), expected.chunk(2))


@pytest.mark.parametrize("query_slices", [1, 3])
def test_attention_is_compiled_as_one_graph(query_slices, draw):
    def on_rank(rank, group):
        layer = parallel.UlyssesAttention(K, 4, 2, group=group, query_slices=query_slices)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        x = draw(8, 2, K).requires_grad_()
        expected = torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
        expect_equal(torch.autograd.grad(compiled(x).sum(), [x, *layer.parameters()]), expected)

    run(1, on_rank)


class TestErrors:
    @pytest.mark.parametrize(
        "sizes, message",
        [
            ((K, 3), "heads = 3: must be a multiple of the 2 ranks"),
            ((K, 4, 1), "key_heads = 1: must be a multiple of the 2 ranks"),
            ((K, 6, 4), "heads = 6: must be a multiple of key_heads = 4"),
            ((K, 10), "features = 48: must be a multiple of heads = 10"),
        ],
    )
    def test_heads_that_do_not_divide(self, sizes, message):
        def on_rank(rank, group):
            with pytest.raises(ValueError, match=message):
                parallel.UlyssesAttention(*sizes, group=group)

        run(2, on_rank)

    @pytest.mark.parametrize("size", [0, -4])
    @pytest.mark.parametrize("name", ["features", "heads", "key_heads", "head_features", "query_slices"])
    def test_sizes_and_slices_less_than_1(self, name, size):
        def on_rank(rank, group):
            with pytest.raises(ValueError, match=f"^{name} = {size}: must be at least 1"):
                parallel.UlyssesAttention(**{"features": K, "heads": 4, name: size}, group=group)

        run(1, on_rank)

    def test_an_input_without_a_batch(self, draw):
        def on_rank(rank, group):
            with pytest.raises(ValueError, match="x must have 3 dimensions"):
                parallel.UlyssesAttention(K, 4, group=group)(draw(M, K))

        run(2, on_rank)

    @pytest.mark.parametrize("needs_gradient", [False, True])
    def test_shapes_that_do_not_fit(self, needs_gradient, draw):
        def on_rank(rank, group):
            weight = draw(N, K + 8).requires_grad_(needs_gradient)
            message = f"columns of weight = {K + 8}: must be {K}, as x has {K}"
            with pytest.raises(flashoverlap.InvalidArgument, match=message):
                parallel.matmul_all_to_all(draw(M, K), weight, group)
            message = f"columns of weight = {K + 8}: must be {K}, as x has {K // 2}"
            with pytest.raises(flashoverlap.InvalidArgument, match=message):
                parallel.all_to_all_matmul(draw(2 * M, K // 2), weight, group)
            message = f"rows of x = {M + 1}: must be a multiple of the 2 ranks"
            with pytest.raises(flashoverlap.InvalidArgument, match=message):
                parallel.all_to_all_matmul(draw(M + 1, K // 2), weight, group)
            with pytest.raises(flashoverlap.InvalidArgument, match="n = 95"):
                parallel.matmul_all_to_all(draw(M, K), draw(95, K).requires_grad_(needs_gradient), group)

        run(2, on_rank)

    def test_only_what_was_gathered_or_exchanged_is_handed_out(self, draw):
        def on_rank(rank, group):
            problem = flashoverlap.Problem("gemm_all_to_all", m=M, n=N, k=K, ranks=2, data_type="fp32")
            with pytest.raises(flashoverlap.InvalidArgument, match="must gather a by rows, or exchange it"):
                flashoverlap.Operator(problem, group).run_and_gather(draw(M, K), draw(N, K))
            problem = flashoverlap.Problem(
                "all_to_all_gemm", m=M, n=N, k=K, ranks=2, data_type="fp32", exchange="heads"
            )
            with pytest.raises(flashoverlap.InvalidArgument, match="keep = True: .* must gather a by rows"):
                flashoverlap.Operator(problem, group).run_and_gather(draw(2 * M, K // 2), draw(N, K), keep=True)

        run(2, on_rank)
