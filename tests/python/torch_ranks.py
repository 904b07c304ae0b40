"""What the tests of PyTorch's operations share: matrices that are drawn, and ranks of the host."""

import flashoverlap
import pytest
import torch


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
