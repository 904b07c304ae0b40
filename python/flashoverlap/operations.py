"""The five operations on matrices, and the operators that run them.

Every rank calls the same operations in the same order. Matrices have the shape [rows, k] whichever of the two
dimensions is contiguous in memory: pass a transposed view where the data lies that way. Data types are
bfloat16, float16 and float32 (on GPUs the first two), the same for `a`, `b` and `out`. `out` is row-major; where
it is not given, it is allocated by the library that `a` comes from.

On GPUs the work is enqueued on the current stream of PyTorch or CuPy, and the operations return at once, unless the
GPU has about 16 of them still to do. An
operation that is called for the first time with these shapes makes its operator, which is collective: every
rank takes part at the same time. `b_is_constant` is the promise of the same name of `Operator`. Wrong
arguments raise `InvalidArgument` before anything is enqueued, and what is no matrix by its type, data type or
dimensions a TypeError or ValueError.

There are no gradients: results do not require any, whatever `a` and `b` do. `flashoverlap.torch` has
operations with gradients.
"""

from typing import Literal, TypeAlias

from flashoverlap._core import problem_of, signature
from flashoverlap.arrays import empty_like
from flashoverlap.changing_rows import RoundedOperator, rows_to_take
from flashoverlap.operators import AnyCommunicator, Matrix, Operator, require_communicator

Exchange: TypeAlias = Literal["rows", "heads"]
Gathered: TypeAlias = Literal["a", "b"]


def gemm_all_reduce(
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None = None,
    *,
    b_is_constant: bool = False,
) -> Matrix:
    """out[m, n] = Σ over ranks of a[m, k] · b[n, k]ᵀ, on every rank."""
    return run("gemm_all_reduce", a, b, communicator, out, b_is_constant=b_is_constant)


def gemm_reduce_scatter(
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None = None,
    *,
    b_is_constant: bool = False,
) -> Matrix:
    """out[m/ranks, n] = this rank's rows of Σ over ranks of a[m, k] · b[n, k]ᵀ. ranks divides m."""
    return run("gemm_reduce_scatter", a, b, communicator, out, b_is_constant=b_is_constant)


def gemm_all_to_all(
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None = None,
    *,
    exchange: Exchange = "heads",
    b_is_constant: bool = False,
) -> Matrix:
    """C = a[m, k] · b[n, k]ᵀ, of which every rank sends equal parts to the others.

    exchange "heads" (Ulysses): columns; rank d gets columns [d·n/ranks, (d+1)·n/ranks) of every rank, out[ranks·m,
    n/ranks]. "rows": rank d gets the d-th part of each rank's rows, out[m, n].
    """
    return run("gemm_all_to_all", a, b, communicator, out, exchange=exchange, b_is_constant=b_is_constant)


def all_gather_gemm(
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None = None,
    *,
    gathered: Gathered = "a",
    b_is_constant: bool = False,
) -> Matrix:
    """out[m, n] = A · Bᵀ, where A (or B) is gathered from the parts that the ranks hold.

    gathered "a": a is this rank's rows [m/ranks, k] of A. Where k is not contiguous in a, its part [m, k/ranks] of k.
    gathered "b": the same of B.
    """
    return run("all_gather_gemm", a, b, communicator, out, gathered=gathered, b_is_constant=b_is_constant)


def all_to_all_gemm(
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None = None,
    *,
    exchange: Exchange = "heads",
    b_is_constant: bool = False,
) -> Matrix:
    """out[m, n] = A · b[n, k]ᵀ, where the ranks exchange equal parts of a first: the inverse of `gemm_all_to_all`.

    exchange "heads": a[ranks·m, k/ranks]; its rows [d·m, (d+1)·m) go to rank d. "rows": a[m, k].
    """
    return run("all_to_all_gemm", a, b, communicator, out, exchange=exchange, b_is_constant=b_is_constant)


def run(
    operation: str,
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    out: Matrix | None,
    exchange: Exchange = "rows",
    gathered: Gathered = "a",
    b_is_constant: bool = False,
) -> Matrix:
    """The operation of this name, with the operator that it takes."""
    try:
        if out is not None:
            return operator_for(
                operation, a, b, communicator, exchange, gathered, b_is_constant=b_is_constant
            ).run(a, b, out)
        return operator_for_rows(
            operation, a, b, communicator, exchange, gathered, b_is_constant=b_is_constant
        ).run(a, b)
    except AttributeError:
        require_communicator(communicator)
        raise


def operator_for(
    operation: str,
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    exchange: Exchange = "rows",
    gathered: Gathered = "a",
    *,
    is_read_later: bool = False,
    b_is_constant: bool = False,
) -> Operator:
    """The operator for matrices of these shapes, data types and layouts, which is made the first time.

    is_read_later, b_is_constant: see `Operator`.
    """
    key = _key(operation, a, b, exchange, gathered, is_read_later, b_is_constant)
    operator = kept(communicator.operators, key)
    if operator is None:
        problem, a_pitch, b_pitch = problem_of(operation, a, b, communicator.ranks, exchange, gathered)
        operator = Operator(
            problem,
            communicator,
            pitches=(a_pitch, b_pitch),
            b_is_constant=b_is_constant,
            is_read_later=is_read_later,
        )
        keep(communicator.operators, key, operator)
    return operator


def operator_for_rows(
    operation: str,
    a: Matrix,
    b: Matrix,
    communicator: AnyCommunicator,
    exchange: Exchange = "rows",
    gathered: Gathered = "a",
    *,
    is_read_later: bool = False,
    b_is_constant: bool = False,
) -> Operator | RoundedOperator:
    """The same, or for one run one of more rows, where the weight has had many numbers of rows."""
    key = _key(operation, a, b, exchange, gathered, is_read_later, b_is_constant)
    operator = kept(communicator.operators, key)
    if operator is not None:
        return operator
    flags = {"is_read_later": is_read_later, "b_is_constant": b_is_constant}
    problem, *_ = problem_of(operation, a, b, communicator.ranks, exchange, gathered)
    rows = rows_to_take(problem, communicator, bytes(flags.values()))
    if rows == problem.m:
        return operator_for(operation, a, b, communicator, exchange, gathered, **flags)
    wide = empty_like(a, (rows * len(a) // problem.m, a.shape[1]))
    return RoundedOperator(
        operator_for(operation, wide, b, communicator, exchange, gathered, **flags),
        problem,
        communicator.rank,
        wide,
        is_read_later=is_read_later,
    )


def _key(
    operation: str,
    a: Matrix,
    b: Matrix,
    exchange: Exchange,
    gathered: Gathered,
    is_read_later: bool,
    b_is_constant: bool,
) -> bytes:
    key = signature(operation, a, b, exchange, gathered)
    if is_read_later:
        key += b"read later"
    if b_is_constant:
        key += b"constant"
    return key


most_operators = 512
"""That functions make for a communicator. Then those go that have not run for the longest time, as where the number of
rows changes from call to call."""


def kept(operators: dict[bytes, Operator], key: bytes) -> Operator | None:
    """The operator of this key, if there is one, which is then the one that ran last."""
    operator = operators.pop(key, None)
    if operator is not None:
        operators[key] = operator
    return operator


def keep(operators: dict[bytes, Operator], key: bytes, operator: Operator) -> None:
    """As the one that ran last. Where there are many, closes the one that has not run for the longest time, but none
    that a CUDA graph may run. The same on all ranks, as these run the same. Collective."""
    if len(operators) >= most_operators:
        oldest = next((of for of, each in operators.items() if not each.is_captured), None)
        if oldest is not None:
            operators.pop(oldest).close()
    operators[key] = operator
