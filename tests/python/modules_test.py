"""What layers do as modules of a larger program, on ranks of the host."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.utils.checkpoint  # noqa: E402
import torch.utils.flop_counter  # noqa: E402
from torch import nn  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, expect_equal, run  # noqa: E402, F401

FEATURES = 32


def layers(group, device):
    return nn.ModuleDict(
        {
            "column": parallel.ColumnParallelLinear(FEATURES, 64, group=group, device=device),
            "row": parallel.RowParallelLinear(64, FEATURES, group=group, device=device),
            "norm": parallel.ReorderRMSNorm(FEATURES, device=device),
            "attention": parallel.UlyssesAttention(FEATURES, 4, group=group, device=device),
            "feed_forward": parallel.GatedFeedForward(FEATURES, 64, group=group, device=device),
        }
    )


def test_what_was_made_without_memory_begins_as_what_was_made_with_it():
    drawn = {}

    def on_rank(rank, group):
        torch.manual_seed(7)
        with_memory = layers(group, "cpu")
        drawn[rank] = [each.clone() for each in with_memory.parameters()]

    def without_memory(rank, group):
        made = layers(group, "meta").to_empty(device="cpu")
        with torch.no_grad():
            for each in made.parameters():
                each.fill_(torch.nan)
        torch.manual_seed(7)
        for module in made.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        assert all(parameter.isfinite().all() for parameter in made.parameters())
        expect_equal(list(made.parameters()), drawn[rank], atol=0)

    # A single rank, as all ranks of the host draw from one generator.
    run(1, on_rank)
    run(1, without_memory)


def test_experts_of_several_ranks_are_marked_for_megatron_and_drawn_again():
    def on_rank(rank, group):
        experts = parallel.ExpertParallelMoE(FEATURES, 64, experts=4, top_k=2, group=group, device="meta")
        copies = [experts, experts.to_empty(device="cpu")]
        for each in copies:
            weights = (each.gate_up_weight, each.down_weight)
            assert [getattr(weight, "allreduce", True) for weight in weights] == 2 * [group.ranks == 1]
            assert getattr(each.router.weight, "allreduce", True)
        for module in (experts, experts.router):
            module.reset_parameters()
        bound = FEATURES**-0.5
        assert 0.8 * bound < experts.gate_up_weight.abs().max() <= bound

    for ranks in (1, 2):
        run(ranks, on_rank)


def test_a_residual_has_the_shape_of_the_result(draw):
    def on_rank(rank, group):
        for comm_op, first in (("all_reduce", 8), ("reduce_scatter", 4)):
            layer = parallel.OverlapRowParallelLayer(64, FEATURES, group=group, comm_op=comm_op)
            result = layer(draw(8, 2, 32))
            norm = parallel.ReorderRMSNorm(FEATURES)
            with pytest.raises(ValueError, match=rf"shape of residual = .*: must be \[{first}, 2, {FEATURES}\]"):
                norm(result, draw(2, first, FEATURES))
            normalized, sum = norm(result, draw(first, 2, FEATURES))
            assert normalized.shape == sum.shape == (first, 2, FEATURES)

    run(2, on_rank)


def test_attention_in_slices_runs_under_modes_that_see_operations(draw):
    def on_rank(rank, group):
        attention = parallel.UlyssesAttention(FEATURES, 4, group=group, query_slices=2)
        x = draw(8, 2, FEATURES).requires_grad_()
        expected = attention(x)
        (gradient,) = torch.autograd.grad(expected.sum(), x)
        with torch.utils.flop_counter.FlopCounterMode(display=False):
            expect_equal([attention(x)], [expected])
        contexts = torch.utils.checkpoint.create_selective_checkpoint_contexts
        policy = torch.utils.checkpoint.CheckpointPolicy.PREFER_RECOMPUTE
        out = torch.utils.checkpoint.checkpoint(
            attention, x, use_reentrant=False, context_fn=lambda: contexts(lambda *_, **__: policy)
        )
        expect_equal([out, *torch.autograd.grad(out.sum(), x)], [expected, gradient])

    run(1, on_rank)


def test_a_product_without_communication_refuses_what_is_no_matrix(draw):
    def on_rank(rank, group):
        for wrong in (draw(2, 8, FEATURES), draw(FEATURES)):
            with pytest.raises(ValueError, match=f"x: must have 2 dimensions, not {wrong.dim()}"):
                parallel.copy_matmul(wrong, draw(16, FEATURES), group)
            with pytest.raises(ValueError, match=f"weight: must have 2 dimensions, not {wrong.dim()}"):
                parallel.copy_matmul(draw(8, FEATURES), wrong, group)

    run(1, on_rank)


def test_names_in_compiled_graphs_say_how_many_ranks_there_are():
    names = {}

    def on_rank(rank, group):
        names[group.ranks] = parallel.groups.name_of(group)
        assert parallel.groups.named(names[group.ranks]) is group

    for ranks in (1, 2):
        run(ranks, on_rank)
    assert names[1].split("-")[1] != names[2].split("-")[1]
