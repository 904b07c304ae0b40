"""Layers that are copied or pickled, on ranks of the host."""

import copy
import gc
import pickle

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap  # noqa: E402
import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, drawn_again, run  # noqa: E402, F401

M, N, K = 64, 96, 48


def test_a_layer_can_be_copied(draw):
    def on_rank(rank, group):
        x = draw(M // 2, K)
        layer = drawn_again(parallel.GatedFeedForward(K, N, group=group), draw)
        copied = copy.deepcopy(layer)
        assert copied.down.weight is not layer.down.weight
        assert torch.equal(copied(x), layer(x))

    run(2, on_rank)


LAYERS_WITH_GROUPS = {
    "linear": lambda group: parallel.GatedFeedForward(K, N, group=group),
    "ulysses": lambda group: parallel.UlyssesAttention(K, 2, group=group),
    "experts": lambda group: parallel.ExpertParallelMoE(K, N, 4, 2, group=group),
}


@pytest.mark.parametrize("kind", LAYERS_WITH_GROUPS)
def test_a_layer_that_was_pickled_belongs_to_its_group_again(kind, draw):
    def on_rank(rank, group):
        x = draw(1, M // 2, K) if kind == "ulysses" else draw(M // 2, K)
        layer = drawn_again(LAYERS_WITH_GROUPS[kind](group), draw)
        read = pickle.loads(pickle.dumps(layer))
        assert torch.equal(read(x), layer(x))

    run(2, on_rank)


def test_a_copy_of_a_compiled_layer_has_its_own_weight(draw):
    def on_rank(rank, group):
        layer = parallel.ColumnParallelLinear(K, N, group=group, bias=False)
        layer.compile(backend="eager")
        copied = copy.deepcopy(layer)
        nn.init.zeros_(copied.weight)
        assert torch.equal(copied(draw(M, K)), torch.zeros(M, N))

    run(1, on_rank)


def test_a_layer_whose_group_is_gone_is_not_read():
    pickled = run(1, lambda rank, group: pickle.dumps(parallel.ColumnParallelLinear(K, N, group=group)))[0]
    gc.collect()
    with pytest.raises(flashoverlap.InvalidArgument, match="must be a process group or communicator that still exists"):
        pickle.loads(pickled)
