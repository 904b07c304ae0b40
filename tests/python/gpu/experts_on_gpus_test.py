"""Routes that change in every step, on GPUs."""

import pytest
from gpu_ranks import DTYPES, K, N, draw, expect_close, of_all, operator_by, own

import torch
import torch.distributed as dist

import flashoverlap
import flashoverlap.torch as parallel

pytestmark = pytest.mark.usefixtures("seed")


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
