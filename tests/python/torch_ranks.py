"""What the tests of PyTorch's operations share: matrices that are drawn, ranks of the host, and a model."""

import threading

import flashoverlap
import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

# PyTorch 2.11 without a GPU crashes once the first thread that has used this mode is gone (pytorch/pytorch#178950).
with FakeTensorMode():
    pass

_thread = threading.local()


@pytest.fixture
def draw(seed, generator):
    """Each rank draws from a generator of its own, so that the order of threads does not matter."""
    torch.manual_seed(seed)
    of_ranks = {}

    def draw(*shape):
        rank = getattr(_thread, "rank", None)
        own = generator if rank is None else of_ranks.setdefault(rank, np.random.default_rng([seed, rank + 1]))
        return torch.from_numpy(own.uniform(-1, 1, shape)).float()

    return draw


def drawn_again(layer, draw):
    """Ranks on threads share PyTorch's generator, from which layers begin."""
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(draw(*weight.shape))
    return layer


def run(ranks, function):
    """`function(rank, group)` on each rank."""

    def on_rank(communicator):
        _thread.rank = communicator.rank
        try:
            return function(communicator.rank, communicator)
        finally:
            _thread.rank = None

    return flashoverlap.run_ranks(ranks, on_rank)


def expect_equal(results, expected, atol=1e-4):
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=atol)


class Block(nn.Module):
    """What `parallelize` is to divide."""

    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
