"""Ranks as threads of one process that compute on the host: for tests, and where there is no GPU."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from flashoverlap._core import (
    CommunicationError,
    HostWorld,
    InvalidArgument,
    Machine,
    Plans,
    Problem,
    Schedule,
    search,
)
from flashoverlap.arrays import concatenate
from flashoverlap.operators import Matrix, NamedCommunicator, require_color, require_wait_limit

Result = TypeVar("Result")


class _Meeting:
    """Where all ranks of a group meet, in the same order on all of them."""

    def __init__(self, ranks: int, wait_limit: float) -> None:
        self.ranks = ranks
        self.wait_limit = wait_limit
        self._given: list[Any] = [None] * ranks
        self._result: Any = None
        self._failure: Exception | None = None
        self._act: Callable[[list[Any]], Any] | None = None
        self._calls = [""] * ranks
        self._arrived = threading.Barrier(ranks, action=self._act_once)
        self._left = threading.Barrier(ranks)
        self._parts: list[_Meeting] = []

    def meet(self, rank: int, call: str, given: Any, act: Callable[[list[Any]], Any]) -> Any:
        """`act` of what all ranks have given, called once; what it returns or raises reaches all of them.

        call: what the rank does, which is the same on all of them.
        """
        self._given[rank], self._calls[rank] = given, call
        if rank == 0:
            self._act = act
        try:
            self._arrived.wait(self.wait_limit)
            result, failure = self._result, self._failure
            self._left.wait(self.wait_limit)
        except threading.BrokenBarrierError:
            raise CommunicationError(
                f"rank {rank} of {self.ranks}: not all ranks came within {self.wait_limit:g} s"
            ) from None
        if failure is not None:
            raise failure
        return result

    def part(self, ranks: int) -> "_Meeting":
        """Of some of the ranks; ends with this one."""
        self._parts.append(_Meeting(ranks, self.wait_limit))
        return self._parts[-1]

    def abort(self) -> None:
        """Ends every wait: a rank is lost."""
        self._arrived.abort()
        self._left.abort()
        for part in self._parts:
            part.abort()

    def _act_once(self) -> None:
        assert self._act is not None
        try:
            for rank, call in enumerate(self._calls):
                if call != self._calls[0]:
                    raise CommunicationError(f"rank {rank} calls {call} where rank 0 calls {self._calls[0]}")
            self._result, self._failure = self._act(self._given), None
        except Exception as failure:
            self._result, self._failure = None, failure
        finally:
            self._given = [None] * self.ranks


class _HostOperator:
    """One rank's part of a world that all of them share."""

    def __init__(self, rank: int, meeting: _Meeting, world: HostWorld, schedule: Schedule) -> None:
        self._rank = rank
        self._meeting = meeting
        self._world = world
        self._schedule = schedule
        self.natural = partial(world.natural, rank)
        self.rms_norm = partial(world.rms_norm, rank)

    @property
    def problem(self) -> Problem:
        return self._world.problem

    @property
    def schedule(self) -> Schedule:
        return self._schedule

    def run(self, a: Matrix, b: Matrix, out: Matrix | None) -> None:
        def run_all(given: list[Any]) -> None:
            self._require_one_world([world for world, *_ in given])
            self._world.run(*(list(matrices) for matrices in zip(*(each[1:] for each in given))))

        self._meeting.meet(self._rank, "an operator", (self._world, a, b, out), run_all)

    def route(self, expert_rows: Sequence[int]) -> None:
        def route_all(given: list[Any]) -> None:
            self._require_one_world([world for world, _ in given])
            self._world.route([rows for _, rows in given])

        self._meeting.meet(self._rank, "route", (self._world, expert_rows), route_all)

    def route_all(self, expert_rows: Sequence[Sequence[int]]) -> None:
        self.route(expert_rows[self._rank])  # in one memory that is no exchange

    @staticmethod
    def _require_one_world(worlds: list[HostWorld]) -> None:
        if any(world is not worlds[0] for world in worlds):
            raise CommunicationError("the ranks run different operators")

    def run_and_gather(self, a: Matrix, b: Matrix, out: Matrix | None, keep: bool) -> Matrix:
        self.run(a, b, out)
        problem = self.problem
        a = a.detach() if hasattr(a, "detach") else a  # PyTorch's, whose gradients would tie the ranks together
        if problem.operation == "all_gather_gemm":
            return self._meeting.meet(self._rank, "gathered", a, concatenate)

        def exchange(given: list[Matrix]) -> list[Matrix]:
            parts = [_parts_for_ranks(problem, rank, each) for rank, each in enumerate(given)]
            return [concatenate(list(received)) for received in zip(*parts)]

        return self._meeting.meet(self._rank, "gathered", a, exchange)[self._rank]

    @property
    def shape(self) -> tuple[int, int]:
        return self._world.shape(self._rank)

    def wait(self) -> None:
        """Runs have ended when they return."""

    @property
    def is_captured(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is left when the last rank has forgotten it."""


def _parts_for_ranks(problem: Problem, source: int, a: Matrix) -> list[Matrix]:
    """The rows that one rank sends to each in an all_to_all_gemm."""
    ranks = range(problem.ranks)
    by_heads = problem.exchange == "heads"
    ends = list(accumulate((problem.m if by_heads else problem.rows_between(source, to) for to in ranks), initial=0))
    return [a[ends[to] : ends[to + 1]] for to in ranks]


class HostCommunicator(NamedCommunicator):
    """One rank of a group of threads, as `run_ranks` makes them. Used by one thread at a time."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self._rank = rank
        self._meeting = meeting
        self._register(f"host-{self.ranks}_ranks")

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def ranks(self) -> int:
        return self._meeting.ranks

    @property
    def machine(self) -> Machine:
        """Whose schedules are taken."""
        return Machine.preset("h200-nvlink")

    def split(self, color: int) -> "HostCommunicator":
        """Ranks that pass the same color (≥ 0) form a group of their own, in the same order. Collective."""

        def groups(given: list[Any]) -> dict[int, tuple[list[int], _Meeting]]:
            colors = [require_color(each, f"color of rank {rank}") for rank, each in enumerate(given)]
            members = {each: [rank for rank, of in enumerate(colors) if of == each] for each in set(colors)}
            return {each: (of, self._meeting.part(len(of))) for each, of in members.items()}

        members, meeting = self._meeting.meet(self._rank, "split", color, groups)[color]
        return HostCommunicator(members.index(self._rank), meeting)

    def gather(self, value: Any) -> list[Any]:
        """What each rank has passed. Collective."""
        gathered: list[Any] = self._meeting.meet(self._rank, "gather", value, list)
        return gathered

    def bind(
        self,
        problem: Problem,
        schedule: Schedule | None,
        pitches: tuple[int, int],
        b_is_constant: bool,
        is_read_later: bool,
    ) -> _HostOperator:
        def make(given: list[tuple[Problem, Schedule | None]]) -> tuple[HostWorld, Schedule]:
            for name, (first, *others) in zip(("problem", "schedule"), zip(*given)):
                for rank, each in enumerate(others, 1):
                    if each != first:
                        rule = f"must be that of rank 0, {first!r}"
                        raise InvalidArgument(f"{name} of rank {rank} = {each!r}: {rule}")
            reader = "norm" if is_read_later else "caller"
            chosen = schedule or search(problem, self.machine, reader=reader)[0].schedule
            return HostWorld(Plans(problem, chosen), self._meeting.wait_limit), chosen

        world, chosen = self._meeting.meet(self._rank, "a new operator", (problem, schedule), make)
        return _HostOperator(self._rank, self._meeting, world, chosen)

    def __repr__(self) -> str:
        return f"<HostCommunicator {self._rank} of {self.ranks}>"


def run_ranks(ranks: int, function: Callable[[HostCommunicator], Result], *, wait_limit: float = 30) -> list[Result]:
    """Calls `function(communicator)` for each rank, rank 0 here and the others in threads; what each returned, in
    rank order.

    Where a rank raises, the others stop waiting for it, and the first error is raised here. wait_limit: seconds that
    a rank waits for the others.
    """
    if ranks < 1:
        raise InvalidArgument(f"ranks = {ranks}: must be at least 1")
    require_wait_limit(wait_limit)
    meeting = _Meeting(ranks, wait_limit)
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = function(HostCommunicator(rank, meeting))
        except BaseException as error:
            errors.append(error)
            meeting.abort()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(1, ranks)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
