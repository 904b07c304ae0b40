"""Two operations on four ranks, threads of this process that compute on the host, checked against NumPy in fp64.

    python examples/python/operations.py

On GPUs the calls are the same, with PyTorch's or CuPy's arrays and `Communicator.from_environment()`.
"""

import numpy as np

import flashoverlap

RANKS, M, N, K = 4, 512, 256, 128

generator = np.random.default_rng(1)
a = generator.standard_normal((RANKS, M, K), np.float32)  # one matrix for each rank
b = generator.standard_normal((RANKS, N, K), np.float32)


def on_rank(communicator: flashoverlap.HostCommunicator) -> tuple[np.ndarray, np.ndarray]:
    own_a, own_b = a[communicator.rank], b[communicator.rank]
    rows = flashoverlap.gemm_reduce_scatter(own_a, own_b, communicator)  # [M / RANKS, N]: own rows of the sum
    product = flashoverlap.all_gather_gemm(own_a, own_b, communicator)  # [RANKS · M, N]: all rows of A, own b
    return rows, product


def check(operation: str, result: np.ndarray, reference: np.ndarray) -> None:
    error = np.linalg.norm(result - reference) / np.linalg.norm(reference)
    print(f"{operation}: relative error {error:.1e}")
    assert error < 1e-6


rows, products = zip(*flashoverlap.run_ranks(RANKS, on_rank))
a, b = a.astype(np.float64), b.astype(np.float64)
check("gemm_reduce_scatter", np.concatenate(rows), sum(own_a @ own_b.T for own_a, own_b in zip(a, b)))
check("all_gather_gemm", np.stack(products), np.stack([a.reshape(-1, K) @ own_b.T for own_b in b]))
