"""What the tests on GPUs share: matrices of their size, and what all ranks have of them.

Where no launcher has started one process per rank, a test that imports this is skipped.
"""

import os

import pytest

if "LOCAL_RANK" not in os.environ:
    pytest.skip("needs one process per GPU, as torchrun starts them", allow_module_level=True)

import torch
import torch.distributed as dist

import flashoverlap

M, N, K = 1024, 768, 512
DTYPES = [torch.bfloat16, torch.float16]


def draw(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(dtype)


def of_all(tensor):
    """Each rank's, in fp32."""
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return [part.float() for part in parts]


def own(tensor, dim=0):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def expect_close(result, reference):
    """Of the norm, and of each element, so that a few wrong ones show."""
    assert result.shape == reference.shape
    differences = result.float() - reference
    error = differences.norm() / reference.norm()
    assert error < 1e-2, error
    # Each rounding to bf16 changes a value by up to 2^-9 of itself, and gradients of experts that few tokens choose
    # have elements of 20 root mean squares. Right results of layers that ran on the host in bf16 came to 0.053.
    scale = reference.square().mean().sqrt() + reference.abs()
    largest = (differences.abs() / scale).max()
    assert largest < 0.1, largest


def total(a, b):
    return sum(x @ w.t() for x, w in zip(of_all(a), of_all(b)))


def operator_by(strategy, problem, communicator, layout="natural", **promises):
    schedule = flashoverlap.search(problem, communicator.machine, [strategy], [layout])[0].schedule
    return flashoverlap.Operator(problem, communicator, schedule, **promises)
