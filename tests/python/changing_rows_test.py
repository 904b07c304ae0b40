"""Weights that meet many numbers of rows, on ranks of the host."""

import numpy as np
import pytest

import flashoverlap
import flashoverlap.changing_rows

N, K = 24, 16
SIZES = [2, 66, 80, 90, 102, 66, 128, 130, 258, 254, 60, 90, 256]  # those of 64 and less have operators of their own


@pytest.fixture(autouse=True)
def few_row_counts(monkeypatch):
    monkeypatch.setattr(flashoverlap.changing_rows, "most_row_counts", 2)


def operators_of(group):
    return {operator.problem.m for operator in group.operators.values()}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("operation", ["gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm"])
def test_those_after_the_first_ones_take_operators_of_more_rows(operation, ranks, generator):
    gathers, scatters = operation == "all_gather_gemm", operation == "gemm_reduce_scatter"
    a = [[generator.uniform(-1, 1, (m // ranks if gathers else m, K)) for _ in range(ranks)] for m in SIZES]
    b = [generator.uniform(-1, 1, (N, K)) for _ in range(ranks)]

    def on_rank(communicator):
        rank = communicator.rank
        multiply = getattr(flashoverlap, operation)
        results = [
            multiply(of_ranks[rank].astype(np.float32), b[rank].astype(np.float32), communicator) for of_ranks in a
        ]
        return results, operators_of(communicator)

    for rank, (results, made) in enumerate(flashoverlap.run_ranks(ranks, on_rank)):
        assert made == {2, 60, 66, 80, 96, 128, 160, 256, 384}
        for result, of_ranks in zip(results, a, strict=True):
            if gathers:
                expected = np.concatenate(of_ranks) @ b[rank].T
            else:
                total = sum(x @ w.T for x, w in zip(of_ranks, b))
                expected = np.split(total, ranks)[rank] if scatters else total
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_slices_of_wider_matrices_and_results_in_given_memory(generator):
    a, b = (generator.uniform(-1, 1, shape).astype(np.float32) for shape in ((200, 2 * K), (N, K)))

    def on_rank(communicator):
        for m in (70, 74, 78, 82):
            part = a[:m, K:]
            for operation in (flashoverlap.gemm_all_reduce, flashoverlap.all_gather_gemm):
                np.testing.assert_allclose(operation(part, b, communicator), part @ b.T, rtol=1e-4, atol=1e-4)
        out = np.full((86, N), np.nan, np.float32)
        assert flashoverlap.gemm_all_reduce(a[:86, K:], b, communicator, out) is out
        np.testing.assert_allclose(out, a[:86, K:] @ b.T, rtol=1e-4, atol=1e-4)
        assert 86 in operators_of(communicator), "the memory has no room for more rows"

    flashoverlap.run_ranks(1, on_rank)
