"""How a rank's part of a layer begins, and what Megatron reads of its parameters."""

import copy
import pickle
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import run  # noqa: E402

N, K, EXPERTS = 96, 48, 8
RANKS = [1, 2, 4]
_one_at_a_time = threading.Lock()  # ranks on threads have one random generator


def from_equal_seeds(make):
    """The layer, and what is drawn next."""
    with _one_at_a_time:
        torch.manual_seed(7)
        return make(), torch.rand(3)


def parts_of(ranks, make):
    """Each rank's layer, which leave equal states."""
    made = run(ranks, lambda rank, group: from_equal_seeds(lambda: make(group)))
    for _, following in made:
        assert torch.equal(following, made[0][1])
    return [layer for layer, _ in made]


def linear(cols, rows):
    return from_equal_seeds(lambda: nn.Linear(cols, rows, bias=False))[0].weight


@pytest.mark.parametrize("ranks", RANKS)
class TestWeightsOfEqualSeeds:
    def test_of_a_column_parallel_layer_are_parts_of_one(self, ranks):
        layers = parts_of(ranks, lambda group: parallel.ColumnParallelLinear(K, N, group=group))
        assert torch.equal(torch.cat([layer.weight for layer in layers]), linear(K, N))

    def test_of_a_row_parallel_layer_are_parts_of_one(self, ranks):
        layers = parts_of(ranks, lambda group: parallel.RowParallelLinear(K, N, group=group))
        assert torch.equal(torch.cat([layer.weight for layer in layers], 1), linear(K, N))

    def test_of_gate_and_up_are_parts_of_two(self, ranks):
        layers = parts_of(ranks, lambda group: parallel.GatedFeedForward(K, N, group=group))
        gates, ups = zip(*(layer.gate_up.weight.chunk(2) for layer in layers))
        assert torch.equal(torch.cat([*gates, *ups]), linear(K, 2 * N))

    def test_of_experts_differ_and_their_router_does_not(self, ranks):
        layers = parts_of(
            ranks, lambda group: parallel.ExpertParallelMoE(K, N, EXPERTS, top_k=2, group=group, max_tokens=4)
        )
        for weights in (
            torch.cat([layer.gate_up_weight for layer in layers]),
            torch.cat([layer.down_weight for layer in layers]),
        ):
            assert len({weight.sum().item() for weight in weights}) == EXPERTS
        assert all(torch.equal(layer.router.weight, layers[0].router.weight) for layer in layers)


def marks(layer):
    names = ("tensor_model_parallel", "partition_dim", "partition_stride", "sequence_parallel")
    return {
        parameter_name: {name: getattr(parameter, name) for name in names if hasattr(parameter, name)}
        for parameter_name, parameter in layer.named_parameters()
    }


LAYERS = {
    "column": (
        lambda group, **options: parallel.ColumnParallelLinear(K, N, group=group, **options),
        {
            "weight": {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1},
            "bias": {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1},
        },
    ),
    "row": (
        lambda group, **options: parallel.RowParallelLinear(K, N, group=group, **options),
        {
            "weight": {"tensor_model_parallel": True, "partition_dim": 1, "partition_stride": 1},
            "bias": {"sequence_parallel": True},
        },
    ),
    "gated": (
        lambda group, **options: parallel.GatedFeedForward(K, N, group=group, **options),
        {
            "gate_up.weight": {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 2},
            "down.weight": {"tensor_model_parallel": True, "partition_dim": 1, "partition_stride": 1},
        },
    ),
    "norm": (
        lambda group, **options: parallel.ReorderRMSNorm(K, sequence_parallel=True, **options),
        {"weight": {"sequence_parallel": True}},
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_marks_of_parameters_stay_where_pytorch_makes_new_ones(kind):
    make, expected = LAYERS[kind]

    def on_rank(rank, group):
        layer = make(group)
        assert marks(layer) == expected
        assert marks(copy.deepcopy(layer)) == expected
        assert marks(pickle.loads(pickle.dumps(layer))) == expected
        on_meta = make(group, device="meta").to_empty(device="cpu")
        assert marks(on_meta) == expected
        on_meta.load_state_dict(layer.state_dict(), assign=True)
        assert marks(on_meta) == expected

    run(2, on_rank)


def test_hidden_features_that_the_ranks_do_not_divide_are_refused_on_every_rank():
    def on_rank(rank, group):
        with pytest.raises(ValueError, match="hidden_features = 6: must be a multiple of the 4 ranks"):
            parallel.GatedFeedForward(K, 6, group=group)

    run(4, on_rank)


def test_no_weight_is_drawn_on_the_meta_device(monkeypatch):
    drawn = []
    monkeypatch.setattr(nn.init, "kaiming_uniform_", lambda weight, **_: drawn.append(weight))
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda router: None)

    def on_rank(rank, group):
        parallel.GatedFeedForward(K, N, group=group, device="meta")
        parallel.ExpertParallelMoE(K, N, EXPERTS, top_k=2, group=group, max_tokens=4, device="meta")

    run(2, on_rank)
    assert not drawn


def test_what_is_marked_otherwise_stays_so():
    def on_rank(rank, group):
        norm = parallel.ReorderRMSNorm(K)
        norm.weight.sequence_parallel = True
        assert norm.to(torch.float32).weight.sequence_parallel
        norm.load_state_dict(norm.state_dict())
        assert norm.weight.sequence_parallel
        layer = parallel.RowParallelLinear(K, N, group=group)
        layer.weight = None
        layer.to(torch.float64)

    run(2, on_rank)


def test_an_input_without_elements_is_refused():
    def on_rank(rank, group):
        for shape in ((0, K), (4, 0, K)):
            layer = parallel.ColumnParallelLinear(K, N, group=group, sequence_parallel=False)
            with pytest.raises(ValueError, match="must have no dimension of 0"):
                layer(torch.zeros(shape))

    run(2, on_rank)
