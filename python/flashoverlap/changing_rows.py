"""Operators of matrices whose number of rows changes from call to call, as while prompts are read.

An operator takes longer to make than to run, and is made for one number of rows. So when a weight has met many
numbers, the next ones are rounded up: the rows are copied to memory that has some more, and the result's are the first
ones of each rank's.
"""

from typing import Any
from weakref import WeakKeyDictionary

from flashoverlap._core import InvalidArgument, Problem
from flashoverlap.arrays import copy_rows, empty_like, first_rows

most_row_counts = 64
"""Numbers of rows of one weight that have operators of their own."""

_row_counts: "WeakKeyDictionary[Any, dict[tuple[object, ...], set[int]]]" = WeakKeyDictionary()
"""Those, by communicator and weight."""


def rows_to_take(problem: Problem, communicator: Any, flags: bytes) -> int:
    """The rows of the operator to take for this problem: its own, or some more. The same on all ranks, as these make
    the same calls."""
    rounded = _rounded(problem)
    if rounded == problem.m:
        return problem.m
    weight = (problem.operation, problem.n, problem.k, problem.data_type, problem.b_layout, flags)
    counts = _row_counts.setdefault(communicator, {}).setdefault(weight, set())
    if len(counts) < most_row_counts:
        counts.add(problem.m)
    return problem.m if problem.m in counts else rounded


def _rounded(problem: Problem) -> int:
    """Few rows have few sizes, and of many a tile has 128."""
    divided = problem.operation in ("gemm_reduce_scatter", "all_gather_gemm")
    by_rows = problem.gathered == "a" and problem.a_layout == "k_contiguous"
    if problem.m <= 64 or not by_rows or not (divided or problem.operation == "gemm_all_reduce"):
        return problem.m
    parts = problem.ranks if divided else 1
    unit = max(8, (32 if problem.m <= 256 else 128) // parts)
    own = problem.m // parts
    return (own + unit - 1) // unit * unit * parts


class RoundedOperator:
    """An operator, for a problem with fewer rows. Used for one run."""

    def __init__(self, operator: Any, problem: Problem, rank: int, wide: Any, *, is_read_later: bool) -> None:
        """wide: memory for an `a` of the operator."""
        self._operator, self._problem, self._wide = operator, problem, wide
        self._shape = problem.out_shape(rank)
        self._is_read_later = is_read_later

    def run(self, a: Any, b: Any) -> Any:
        operation, ranks = self._problem.operation, self._problem.ranks
        copy_rows(a, self._wide, parts=ranks if operation == "gemm_reduce_scatter" else 1)
        result = self._operator.run(self._wide, b)
        if self._is_read_later:
            return result
        if operation != "all_gather_gemm":
            return first_rows(result, self._shape[0])
        out = empty_like(a, self._shape)
        copy_rows(result, out, parts=ranks)
        return out

    def rms_norm(
        self, result: Any, weight: Any, residual: Any | None = None, *, epsilon: float = 1e-6
    ) -> tuple[Any, Any]:
        if residual is not None:
            if tuple(residual.shape) != tuple(self._shape):
                raise InvalidArgument(f"shape of residual = {tuple(residual.shape)}: must be {tuple(self._shape)}")
            wide = empty_like(residual, self._operator.problem.out_shape(0), "residual")
            copy_rows(residual, wide)
            residual = wide
        normalized, sum = self._operator.rms_norm(result, weight, residual, epsilon=epsilon)
        return first_rows(normalized, self._shape[0]), first_rows(sum, self._shape[0])
