"""What the tests of PyTorch's operations share: matrices that are drawn, ranks of the host, and a model."""

import flashoverlap
import pytest
import torch
from torch import nn


@pytest.fixture
def draw(generator):
    def draw(*shape):
        return torch.from_numpy(generator.uniform(-1, 1, shape)).float()

    return draw


def run(ranks, function):
    """`function(rank, group)` on each rank."""
    return flashoverlap.run_ranks(ranks, lambda communicator: function(communicator.rank, communicator))


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
