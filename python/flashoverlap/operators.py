"""Communicators and operators as host and GPUs both have them."""

import itertools
import operator
from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeAlias
from weakref import WeakValueDictionary

from flashoverlap._core import CommunicationError, InvalidArgument, Machine, Problem, Schedule
from flashoverlap.arrays import begin_writing, empty_like

Matrix: TypeAlias = Any
"""Speaks DLPack and has two dimensions: a NumPy, PyTorch or CuPy array."""


class BoundOperator(Protocol):
    """One rank's part of a problem, as a communicator makes it."""

    @property
    def problem(self) -> Problem:
        """With the routes that were taken last."""

    @property
    def schedule(self) -> Schedule: ...

    def run(self, a: Matrix, b: Matrix, out: Matrix | None) -> None: ...

    def route(self, expert_rows: Sequence[int]) -> None: ...

    def route_all(self, expert_rows: Sequence[Sequence[int]]) -> None: ...

    def run_and_gather(self, a: Matrix, b: Matrix, out: Matrix | None, keep: bool) -> Matrix: ...

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix that a run writes."""

    def natural(self, result: Matrix, out: Matrix) -> None: ...

    def rms_norm(
        self,
        result: Matrix,
        weight: Matrix,
        epsilon: float,
        residual: Matrix | None,
        normalized: Matrix,
        sum: Matrix,
    ) -> None: ...

    def wait(self) -> None: ...

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph may run it."""

    def close(self) -> None:
        """It must not be used any more. Collective."""


class AnyCommunicator(Protocol):
    """One rank of a group of ranks, on GPUs (`Communicator`) or on the host (`HostCommunicator`)."""

    @property
    def rank(self) -> int: ...

    @property
    def ranks(self) -> int: ...

    @property
    def name(self) -> str:
        """No other communicator of this process has it."""

    @property
    def operators(self) -> "dict[bytes, Operator]":
        """Those that the functions of this module have made, by the signature of their arguments; the one that was used
        last comes last."""

    @property
    def machine(self) -> Machine:
        """What predictions are made from, the same on all ranks."""

    def bind(
        self,
        problem: Problem,
        schedule: Schedule | None,
        pitches: tuple[int, int],
        b_is_constant: bool,
        is_read_later: bool,
    ) -> BoundOperator: ...


communicators: "WeakValueDictionary[str, AnyCommunicator]" = WeakValueDictionary()
"""All of this process, by name."""


def require_wait_limit(seconds: float) -> None:
    """Raises InvalidArgument for what no clock can count."""
    if not 0 < seconds <= 86400:
        raise InvalidArgument(f"wait_limit = {seconds:g} s: must be more than 0 s and at most a day, 86400 s")


def require_communicator(communicator: object) -> None:
    """Raises TypeError for what is none."""
    if not hasattr(communicator, "operators"):
        rule = "must be a Communicator, or a HostCommunicator as run_ranks passes it"
        raise TypeError(f"communicator = {communicator!r}: {rule}")


def require_color(color: Any, name: str = "color") -> int:
    """What `split` takes, as a number of Python. Raises TypeError and InvalidArgument for anything else."""
    rule = f"must be a whole number from 0 to {2**31 - 1}"
    try:
        number = operator.index(color)
    except TypeError:
        raise TypeError(f"{name} = {color!r}: {rule}") from None
    if not 0 <= number < 2**31:
        raise InvalidArgument(f"{name} = {color!r}: {rule}")
    return number


class NamedCommunicator(AnyCommunicator):
    """What communicators on GPUs and on the host share."""

    _made = itertools.count()

    def _register(self, kind: str) -> None:
        """Gives it a name. Called once, before anything else of this class."""
        self.number = next(self._made)
        self._name = f"{kind}-{self.number}"
        self._operators: dict[bytes, Operator] = {}
        communicators[self._name] = self

    @property
    def name(self) -> str:
        return self._name

    @property
    def operators(self) -> "dict[bytes, Operator]":
        return self._operators

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied layer has the same group


class Operator:
    """One rank's part of a problem, made once and run many times.

    problem: for all ranks, the same on all of them.
    schedule: how it is computed; where it is not given the tuner's choice, which may measure first. The same on
        all ranks.
    pitches: elements from one row of a, and of b, in memory to the next; 0: the rows have no padding.
    b_is_constant: promises that the kernel that a stream runs right before a run does not write b, as none
        writes weights during inference. On GPUs b may then be loaded while that kernel ends; on the host
        nothing changes.
    is_read_later: its results are read by `natural` and `rms_norm` only. On GPUs what peers write then stays with the
        operator, as in layout "partial", which saves a copy; and the tuner's choice is the fastest with a norm, in
        any layout.

    Collective: every rank makes it at the same time. Used by one thread at a time. Its runs follow each other.
    """

    def __init__(
        self,
        problem: Problem,
        communicator: AnyCommunicator,
        schedule: Schedule | None = None,
        *,
        pitches: tuple[int, int] = (0, 0),
        b_is_constant: bool = False,
        is_read_later: bool = False,
    ) -> None:
        require_communicator(communicator)
        if not isinstance(problem, Problem):
            raise TypeError(f"problem = {problem!r}: must be a Problem")
        if problem.ranks != communicator.ranks:
            ranks = communicator.ranks
            raise InvalidArgument(f"problem.ranks = {problem.ranks}: must be {ranks}, as the communicator has")
        self._problem = problem
        self._rank = communicator.rank
        self._natural_shape = problem.out_shape(self._rank)
        self._takes_routes = problem.capacity > 0
        self._bound = communicator.bind(problem, schedule, pitches, b_is_constant, is_read_later)
        self._out_shape = self._bound.shape

    @property
    def problem(self) -> Problem:
        """With the routes that were taken last."""
        return self._problem

    @property
    def schedule(self) -> Schedule:
        return self._bound.schedule

    def run(self, a: Matrix, b: Matrix, out: Matrix | None = None) -> Matrix:
        """Runs on a and b, with the shapes of `problem.a_shape` and `problem.b_shape`, and returns `out`.

        By a schedule of layout "tiled", `out` stays in the order in which it was communicated, and has a shape of its
        own: read it by `natural` or `rms_norm`. The same by layout "partial", which leaves to them to add up what the
        ranks have computed; on GPUs that stays with the operator, valid until the next run of any operator of this
        communicator, and `out` is empty. So may any result that is read later.

        Of a problem with a capacity, a has at least the rows that the routes send, and at most m; out has as many as
        there may be with any routes, `capacity` of them. What is returned are the first ones, those of the routes that
        were taken last.
        """
        if out is None:
            out = empty_like(a, self._out_shape)
        else:
            begin_writing(out)
        self._bound.run(a, b, out)
        return out[: self._natural_shape[0]] if self._takes_routes else out

    def route(self, expert_rows: Sequence[int]) -> None:
        """Takes other routes for the runs that follow: how many rows this rank has for each expert, rank 0's first.

        The problem has a capacity. Collective; waits for all ranks, and until earlier runs have ended. Raises
        InvalidArgument on every rank for routes that do not fit, which names rank and rows: the routes then stay as
        they are.
        """
        self._require_routes()
        self._bound.route(expert_rows)
        self._take_problem()

    def route_all(self, expert_rows: Sequence[Sequence[int]]) -> None:
        """The same where every rank knows the routes of all already, as those of `problem.returning`: expert_rows[r] is
        rank r's, and all ranks pass the same. Exchanges nothing, and waits only until this rank's earlier runs have
        ended."""
        self._require_routes()
        self._bound.route_all(expert_rows)
        self._take_problem()

    def _require_routes(self) -> None:
        if not self._takes_routes:
            raise InvalidArgument(f"problem = {self._problem!r}: must have a capacity to take other routes")

    def _take_problem(self) -> None:
        self._problem = self._bound.problem
        self._natural_shape = self._problem.out_shape(self._rank)

    def run_and_gather(
        self, a: Matrix, b: Matrix, out: Matrix | None = None, *, keep: bool = False
    ) -> tuple[Matrix, Matrix]:
        """As `run`. Returns the operand that the ranks have gathered or exchanged too.

        Of an all_gather_gemm that gathers by rows, A[m, k]. Of an all_to_all_gemm by heads the ranks' columns of
        A[m, k] one below the other, [ranks·m, k/ranks]; by rows those that this rank has received. Valid until the next
        run of any operator of this communicator.

        keep: of an all_gather_gemm, returns A in memory of its own, which stays valid. This rank's rows are copied
        there concurrently with the run, others' after it.
        """
        problem = self._problem
        gathers = (problem.operation, problem.gathered, problem.a_layout) == ("all_gather_gemm", "a", "k_contiguous")
        if not gathers and problem.operation != "all_to_all_gemm":
            raise InvalidArgument(f"problem = {problem!r}: must gather a by rows, or exchange it")
        if keep and not gathers:
            raise InvalidArgument(f"keep = True: problem = {problem!r} must gather a by rows")
        if out is None:
            out = empty_like(a, self._out_shape)
        else:
            begin_writing(out)
        gathered = self._bound.run_and_gather(a, b, out, keep)
        return out[: self._natural_shape[0]] if self._takes_routes else out, gathered

    def natural(self, result: Matrix) -> Matrix:
        """What `run` has returned as an ordinary matrix, with the shape of `problem.out_shape`."""
        out = empty_like(result, self._natural_shape, "result")
        self._bound.natural(result, out)
        return out

    def rms_norm(
        self, result: Matrix, weight: Matrix, residual: Matrix | None = None, *, epsilon: float = 1e-6
    ) -> tuple[Matrix, Matrix]:
        """RMSNorm of what `run` has returned, in one pass that also undoes its order.

        Returns two ordinary matrices, with the shape of `problem.out_shape`: sum = result + residual, and sum[i, j] /
        sqrt(mean_j(sum[i, j]²) + epsilon) · weight[j]. Computed in fp32, each rounded once. weight: [n]. residual: of
        that shape. Raises InvalidArgument for other shapes and data types.
        """
        normalized, sum = (empty_like(result, self._natural_shape, "result") for _ in range(2))
        self._bound.rms_norm(result, weight.reshape(1, -1), epsilon, residual, normalized, sum)
        return normalized, sum

    def wait(self) -> None:
        """Returns when every run has ended. Raises the error that one has ended with."""
        self._bound.wait()

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph may have a run, so that it must not be closed before the graph is destroyed."""
        return self._bound.is_captured

    def close(self) -> None:
        """Gives back what it has besides the memory that the communicator's operators share. Collective. It must not be
        used any more, neither by graphs nor by what `run_and_gather` has returned. The communicator's `close` does it
        for all."""
        bound, self._bound = self._bound, _Closed()
        bound.close()

    def __repr__(self) -> str:
        by = "closed" if isinstance(self._bound, _Closed) else f"by {self.schedule.strategy}"
        return f"<Operator {self._problem!r} {by}>"


class _Closed:
    """What an operator that was closed has in place of its own."""

    is_captured = False

    def close(self) -> None:
        """It is."""

    def __getattr__(self, name: str) -> Any:
        raise CommunicationError(f"{name}: the operator is closed: make another one")
