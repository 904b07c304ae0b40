"""Experts on ranks of the host, with routes that change in every step, against plain PyTorch on one process."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, drawn_again, expect_equal, run  # noqa: E402, F401

RANKS = [1, 2, 4]
EXPERTS = 3  # of each rank
ROWS, N, K = 40, 24, 16
TOKENS, FEATURES, HIDDEN, TOP_K = 20, 16, 24, 2


def random_routes(generator, ranks, most=ROWS):
    """For each rank how many rows go to each expert: many to few, none to others, and of one of several ranks none."""
    routes = []
    for rank in range(ranks):
        shares = generator.dirichlet([0.3] * (ranks * EXPERTS))
        routes.append(generator.multinomial(generator.integers(1, most + 1), shares).tolist())
    if ranks > 1:
        routes[generator.integers(ranks)] = [0] * (ranks * EXPERTS)
    return routes


def experts_of(routes, rank):
    """The number of the expert of each row of a rank, in the world."""
    return torch.repeat_interleave(torch.arange(len(routes[rank])), torch.tensor(routes[rank]))


def received(routes, rank):
    return sum(sum(each[rank * EXPERTS : (rank + 1) * EXPERTS]) for each in routes)


def leaves(tensors):
    return [each.clone().requires_grad_() for each in tensors]


@pytest.mark.parametrize("ranks", RANKS)
class TestProducts:
    """There and back: each row through both weights of its expert."""

    def plain(self, routes, xs, there, back):
        results = []
        for rank, x in enumerate(xs):
            numbers = experts_of(routes, rank).tolist()
            rows = [row @ there[number].t() @ back[number].t() for row, number in zip(x, numbers)]
            results.append(torch.stack(rows) if rows else x.new_zeros(0, K) + 0 * x.sum())
        return results

    @pytest.mark.parametrize("wanted", ["x", "weights", "both"])
    @pytest.mark.parametrize("draws", range(3))
    def test_gradients_are_those_of_plain_pytorch_in_every_step(self, ranks, wanted, draws, generator, draw):
        there, back = draw(ranks * EXPERTS, N, K), draw(ranks * EXPERTS, K, N)
        steps = [random_routes(generator, ranks) for _ in range(3)]
        xs = [[draw(sum(each), K) for each in routes] for routes in steps]
        gradients = [[draw(*x.shape) for x in each] for each in xs]

        def on_rank(rank, group):
            results = []
            for step, routes in enumerate(steps):
                x = xs[step][rank].clone().requires_grad_(wanted != "weights")
                own = slice(rank * EXPERTS, (rank + 1) * EXPERTS)
                weights = [each[own].clone().requires_grad_(wanted != "x") for each in (there, back)]
                product, taken = parallel.dispatch_matmul(x, weights[0], routes[rank], group, most_rows=ROWS)
                assert (taken.rows, taken.received, len(product)) == (len(x), received(routes, rank), taken.received)
                assert taken.of_ranks == routes
                out = parallel.matmul_combine(product, weights[1], taken)
                out.backward(gradients[step][rank])
                results.append([out.detach(), *(each.grad for each in (x, *weights))])
            operators = list(group.operators.values())
            assert len(operators) == (4 if wanted != "weights" else 3)  # made once
            by_rows = [each.problem.b_layout == "row_contiguous" for each in operators]
            assert by_rows == [step >= 2 for step in range(len(operators))]
            return results

        results = run(ranks, on_rank)
        for step, routes in enumerate(steps):
            leaf_xs, (leaf_there, leaf_back) = leaves(xs[step]), leaves((there, back))
            outs = self.plain(routes, leaf_xs, leaf_there, leaf_back)
            torch.autograd.backward(outs, gradients[step])
            for rank in range(ranks):
                out, of_x, of_there, of_back = results[rank][step]
                expect_equal([out], [outs[rank]])
                if wanted != "weights":
                    expect_equal([of_x], [leaf_xs[rank].grad])
                if wanted != "x":
                    of_weights = [each.grad.chunk(ranks)[rank] for each in (leaf_there, leaf_back)]
                    expect_equal([of_there, of_back], of_weights, atol=1e-3)

    def test_steps_whose_backward_passes_come_later_keep_their_routes(self, ranks, generator, draw):
        there, back = draw(ranks * EXPERTS, N, K), draw(ranks * EXPERTS, K, N)
        steps = [random_routes(generator, ranks) for _ in range(2)]
        xs = [[draw(sum(each), K) for each in routes] for routes in steps]

        def on_rank(rank, group):
            own = slice(rank * EXPERTS, (rank + 1) * EXPERTS)
            inputs = leaves([xs[step][rank] for step in range(2)])
            outs = []
            for routes, x in zip(steps, inputs):
                product, taken = parallel.dispatch_matmul(x, there[own], routes[rank], group, most_rows=ROWS)
                outs.append(parallel.matmul_combine(product, back[own], taken))
            for out in outs:
                out.sum().backward()
            return [x.grad for x in inputs]

        results = run(ranks, on_rank)
        for step, routes in enumerate(steps):
            inputs = leaves(xs[step])
            sum(out.sum() for out in self.plain(routes, inputs, there, back)).backward()
            expect_equal([results[rank][step] for rank in range(ranks)], [x.grad for x in inputs])


def plain_mixture(x, router, gate_up, down, top_k=TOP_K):
    """Of all experts, in fp32."""
    logits, chosen = (x @ router.t()).topk(top_k)
    scores = logits.softmax(-1)
    out = torch.zeros_like(x)
    for expert, (into, out_of) in enumerate(zip(gate_up, down)):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        gate, up = (x[token] @ into.t()).chunk(2, -1)
        result = (torch.nn.functional.silu(gate) * up) @ out_of.t()
        out = out.index_add(0, token, result * scores[token, place, None])
    return out


def mixture(group, weights, **options):
    layer = parallel.ExpertParallelMoE(FEATURES, HIDDEN, group.ranks * EXPERTS, TOP_K, group=group, **options)
    with torch.no_grad():
        layer.router.weight.copy_(weights[0])
        layer.gate_up_weight.copy_(weights[1].chunk(group.ranks)[group.rank])
        layer.down_weight.copy_(weights[2].chunk(group.ranks)[group.rank])
    return layer


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_may_have_one_expert(ranks, draw):
    """PyTorch's grouped products refuse what is made of one number with a stride."""

    def on_rank(rank, group):
        layer = drawn_again(parallel.ExpertParallelMoE(FEATURES, HIDDEN, ranks, 1, group=group), draw)
        x = draw(TOKENS, FEATURES).requires_grad_()
        layer(x).sum().backward()
        assert x.grad.isfinite().all()
        assert layer.gate_up_weight.grad.isfinite().all()

    run(ranks, on_rank)


def draw_weights(draw, ranks):
    experts = ranks * EXPERTS
    return draw(experts, FEATURES), draw(experts, 2 * HIDDEN, FEATURES), draw(experts, FEATURES, HIDDEN)


@pytest.mark.parametrize("ranks", RANKS)
class TestMixture:
    @pytest.mark.parametrize("is_ragged", [False, True])
    @pytest.mark.parametrize("draws", range(3))
    def test_it_computes_and_learns_what_plain_pytorch_does(self, ranks, is_ragged, draws, generator, draw):
        weights = draw_weights(draw, ranks)
        counts = [[TOKENS] * ranks for _ in range(3)]
        if is_ragged:
            counts = generator.integers(TOKENS + 1, size=(3, ranks)).tolist()
            counts[1][0] = 0
        xs = [[draw(tokens, FEATURES) for tokens in each] for each in counts]
        gradients = [[draw(*x.shape) for x in each] for each in xs]

        def on_rank(rank, group):
            layer = mixture(group, weights, max_tokens=TOKENS if is_ragged else None)
            results = []
            for step in range(3):
                x = xs[step][rank].clone().requires_grad_()
                layer.zero_grad()
                out = layer(x)
                out.backward(gradients[step][rank])
                results.append([out.detach(), x.grad, *(each.grad.clone() for each in layer.parameters())])
                with torch.no_grad():
                    torch.testing.assert_close(layer(x), out)
            return results

        results = run(ranks, on_rank)
        for step in range(3):
            inputs, (router, gate_up, down) = leaves(xs[step]), leaves(weights)
            outs = [plain_mixture(x, router, gate_up, down) for x in inputs]
            torch.autograd.backward(outs, gradients[step])
            for rank in range(ranks):
                out, of_x, *of_experts, _ = results[rank][step]
                expect_equal([out, of_x], [outs[rank], inputs[rank].grad], atol=1e-3)
                expect_equal(of_experts, [each.grad.chunk(ranks)[rank] for each in (gate_up, down)], atol=1e-3)
            expect_equal([sum(results[rank][step][-1] for rank in range(ranks))], [router.grad], atol=1e-3)

    def test_in_bf16_it_is_near_fp32(self, ranks, draw):
        weights = [each.bfloat16() for each in draw_weights(draw, ranks)]
        xs = [draw(TOKENS, FEATURES).bfloat16() for _ in range(ranks)]

        def on_rank(rank, group):
            layer = mixture(group, weights, dtype=torch.bfloat16)
            # Near the edge of the choice rounding decides: both sides take the same experts.
            scores, chosen = layer.choose(xs[rank])
            layer.choose = lambda tokens: (scores.detach(), chosen)
            x = xs[rank].clone().requires_grad_()
            out = layer(x)
            out.float().sum().backward()
            return out.detach(), x.grad, scores.detach(), chosen

        for rank, (out, of_x, scores, chosen) in enumerate(run(ranks, on_rank)):
            assert out.dtype == of_x.dtype == torch.bfloat16
            x = xs[rank].float().requires_grad_()
            expected = torch.zeros_like(x)
            for expert, (into, out_of) in enumerate(zip(weights[1].float(), weights[2].float())):
                gate, up = (x @ into.t()).chunk(2, -1)
                share = (scores * (chosen == expert)).sum(-1, keepdim=True)
                expected = expected + share * ((torch.nn.functional.silu(gate) * up) @ out_of.t())
            expected.sum().backward()
            for result, reference in ((out, expected), (of_x, x.grad)):
                assert (result.float() - reference).norm() < 2e-2 * reference.norm()

    def test_autocast_computes_in_its_data_type(self, ranks, draw):
        weights = draw_weights(draw, ranks)
        xs = [draw(TOKENS, FEATURES) for _ in range(ranks)]

        def on_rank(rank, group):
            layer = mixture(group, weights)
            with torch.autocast("cpu", torch.bfloat16):
                out = layer(xs[rank])
            out.float().sum().backward()
            assert {each.grad.dtype for each in layer.parameters()} == {torch.float32}
            return out.dtype

        assert set(run(ranks, on_rank)) == {torch.bfloat16}


def test_dimensions_before_the_last_are_tokens_and_one_token_is_enough(draw):
    def on_rank(rank, group):
        layer = mixture(group, weights)
        torch.testing.assert_close(layer(x).flatten(0, 1), layer(x.flatten(0, 1)))
        assert layer(x[:1, :1]).shape == (1, 1, FEATURES)

    weights, x = draw_weights(draw, 2), draw(5, 4, FEATURES)
    run(2, on_rank)


def test_routers_and_activations_of_ones_own(draw):
    class Own(parallel.ExpertParallelMoE):
        def choose(self, tokens):
            return torch.ones(len(tokens), 1), torch.full((len(tokens), 1), 4)

        def activate(self, gate_up):
            return gate_up[:, : gate_up.shape[1] // 2]

    weights, x = draw_weights(draw, 2), draw(TOKENS, FEATURES)

    def on_rank(rank, group):
        layer = Own(FEATURES, HIDDEN, 2 * EXPERTS, 1, group=group)
        layer.load_state_dict(mixture(group, weights).state_dict())
        return layer(x).detach()

    expected = x @ weights[1][4][:HIDDEN].t() @ weights[2][4].t()
    expect_equal(run(2, on_rank), [expected] * 2)


def test_the_rest_of_a_model_is_compiled(draw):
    weights, x = draw_weights(draw, 1), draw(TOKENS, FEATURES)

    def on_rank(rank, group):
        layer = mixture(group, weights)
        model = torch.nn.Sequential(torch.nn.Tanh(), layer, torch.nn.Tanh())
        expected = torch.autograd.grad(model(x).sum(), layer.parameters())
        compiled = torch.compile(model, backend="aot_eager")
        expect_equal(torch.autograd.grad(compiled(x).sum(), layer.parameters()), expected)

    run(1, on_rank)


class TestErrors:
    def test_reach_every_rank_and_the_layer_goes_on(self, draw):
        """More rows than a rank may receive, or sends."""

        class Crowded(parallel.ExpertParallelMoE):
            expert = None

            def choose(self, tokens):
                scores, chosen = super().choose(tokens)
                return scores, chosen if self.expert is None else torch.full_like(chosen, self.expert)

        def on_rank(rank, group):
            layer = Crowded(FEATURES, HIDDEN, 2 * EXPERTS, 1, group=group, capacity_factor=1.5, max_tokens=TOKENS)
            layer.expert = rank * EXPERTS  # each rank its own: as many as even routes
            first = layer(xs[rank]).detach()
            layer.expert = EXPERTS
            with pytest.raises(flashoverlap.InvalidArgument, match=r"rows that rank 1 receives = 40: .* capacity = 30"):
                layer(xs[rank])
            layer.expert = 2 * EXPERTS if rank == 1 else 0
            with pytest.raises(flashoverlap.InvalidArgument, match=r"expert_rows\[1\] = 7 entries: must have 6"):
                layer(xs[rank])
            layer.expert = 0
            too_many = rf"tokens of x = {TOKENS + 1}: must be at most max_tokens = {TOKENS}"
            seen_by_others = r"expert_rows\[0\] = 21 rows in all: .* m = 20"
            with pytest.raises(flashoverlap.InvalidArgument, match=seen_by_others if rank else too_many):
                layer(longer if rank == 0 else xs[rank])
            layer.expert = rank * EXPERTS
            torch.testing.assert_close(layer(xs[rank]), first)

        xs, longer = [draw(TOKENS, FEATURES) for _ in range(2)], draw(TOKENS + 1, FEATURES)
        run(2, on_rank)

    def test_of_ranks_that_disagree_reach_every_rank(self, draw):
        x = draw(TOKENS, FEATURES)

        def on_rank(rank, group):
            with pytest.raises(flashoverlap.InvalidArgument, match="must be that of rank 0"):
                parallel.ExpertParallelMoE(FEATURES, HIDDEN + 8 * rank, 4, 2, group=group)(x)
            with pytest.raises(flashoverlap.InvalidArgument, match="must be that of rank 0"):
                parallel.ExpertParallelMoE(FEATURES, HIDDEN, 4, 2, group=group)(x[rank:])
            layer = parallel.ExpertParallelMoE(FEATURES, HIDDEN, 4, 2, group=group)
            layer(x)
            with pytest.raises(flashoverlap.CommunicationError):
                layer(x) if rank == 0 else parallel.matmul_all_reduce(x, x, group)

        run(2, on_rank)

    def test_of_one_rank_end_the_others(self, draw):
        x = draw(TOKENS, FEATURES)

        def on_rank(rank, group):
            layer = parallel.ExpertParallelMoE(FEATURES, HIDDEN, 4, 2, group=group)
            layer(x)
            if rank == 1:
                raise KeyError("lost")
            with pytest.raises(flashoverlap.CommunicationError):
                layer(x)

        with pytest.raises(KeyError):
            run(2, on_rank)

    def test_of_operands(self, draw):
        weight = draw(2, N, K)

        def dispatch(group, x, weight):
            return parallel.dispatch_matmul(x, weight, [1, 2, 3, 4], group)

        def on_rank(rank, group):
            for x, wrong, message in (
                (draw(9, K), weight, r"x has the shape \[9, 16\]: must have 2 dimensions, and sum\(expert_rows\) = 10"),
                (draw(10), weight, r"x has the shape \[10\]"),
                (draw(10, K), weight[0], r"weight has the shape \[24, 16\]: must be \[experts of this rank, n, k\]"),
            ):
                with pytest.raises(ValueError, match=message):
                    dispatch(group, x, wrong)
            with pytest.raises(TypeError, match="weight is torch.float64: must be one of torch.bfloat16"):
                dispatch(group, draw(10, K).double(), weight.double())
            with pytest.raises(TypeError, match="x is torch.bfloat16: must be torch.float32, as weight is"):
                dispatch(group, draw(10, K).bfloat16(), weight)
            with pytest.raises(ValueError, match=r"x has the shape \[10, 24\]: must have 16 columns, as"):
                dispatch(group, draw(10, N), weight)
            with pytest.raises(flashoverlap.InvalidArgument, match=r"expert_rows\[0\] = 4 entries: must have 6"):
                dispatch(group, draw(10, K), draw(3, N, K))
            product, routes = dispatch(group, draw(10, K), weight)
            with pytest.raises(ValueError, match="routes.received = "):
                parallel.matmul_combine(product[1:], draw(2, K, N), routes)
            with pytest.raises(ValueError, match="weight has the shape"):
                parallel.matmul_combine(product, draw(1, K, N), routes)

        run(2, on_rank)

    def test_of_arguments(self, draw):
        def on_rank(rank, group):
            for arguments, options, message in (
                ((3, 1), {}, "experts = 3: must be a multiple of the 2 ranks"),
                ((4, 0), {}, "top_k = 0: must be 1 to experts = 4"),
                ((4, 5), {}, "top_k = 5: must be"),
                ((4, 1), {"max_tokens": 0}, "max_tokens = 0: must be at least 1"),
                ((4, 1), {"capacity_factor": 0.5}, "capacity_factor = 0.5: must be at least 1"),
                ((4, 1), {"capacity_factor": math.nan}, "capacity_factor = nan: must be at least 1"),
                ((4, 1), {"capacity_factor": math.inf}, "capacity_factor = inf: must be .* finite"),
            ):
                with pytest.raises(ValueError, match=message):
                    parallel.ExpertParallelMoE(FEATURES, HIDDEN, *arguments, group=group, **options)

        run(2, on_rank)
