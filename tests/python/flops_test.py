"""What PyTorch counts of the operations, on ranks of the host."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.utils.flop_counter  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, run  # noqa: E402, F401

M, N, K = 64, 96, 48


@pytest.mark.parametrize(
    "operation",
    ["matmul_all_reduce", "matmul_reduce_scatter", "all_gather_matmul", "copy_matmul", "sharded_weight_matmul"]
    + ["matmul_all_to_all", "all_to_all_matmul", "matmul_all_reduce_rms_norm", "matmul_reduce_scatter_rms_norm"],
)
def test_operations_are_counted_like_their_products(operation, draw):
    ranks = 2
    parts = {"all_gather_matmul": (2, 1, 1), "sharded_weight_matmul": (1, 2, 1), "all_to_all_matmul": (1, 1, 2)}
    x_rows, weight_rows, x_cols = parts.get(operation, (1, 1, 1))
    m = M // ranks if operation == "all_to_all_matmul" else M  # of the product

    def on_rank(rank, group):
        x = draw(M // x_rows, K // x_cols).requires_grad_()
        weight = draw(N // weight_rows, K).requires_grad_()
        norm = (torch.ones(N),) if operation.endswith("rms_norm") else ()
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            result = getattr(parallel, operation)(x, weight, *norm, group)
            (result[0] if norm else result).sum().backward()
        assert counter.get_total_flops() == 3 * 2 * m * N * K

    run(ranks, on_rank)
