"""Ranks on GPUs: one process per GPU, or one process with a thread per GPU."""

import atexit
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from flashoverlap._core import CommunicationError, Machine, Problem, Schedule

try:
    from flashoverlap import _gpu
except ImportError as missing:
    raise ImportError(
        "ranks on GPUs need CUDA and NCCL: `pip install 'flashoverlap[cuda13]'`, and the package built where nvcc is"
        f" ({missing})"
    ) from missing
from flashoverlap.arrays import empty_like, from_dlpack, packed
from flashoverlap.operators import Matrix, NamedCommunicator, require_color, require_wait_limit

if TYPE_CHECKING:
    import torch.distributed

# Of matrices on GPUs, into ones that the caller has made: see swiglu.hpp and rms_norm_gradient.hpp.
swiglu = _gpu.swiglu
swiglu_gradient = _gpu.swiglu_gradient
most_norm_gradient_cols = _gpu.most_norm_gradient_cols
norm_gradient_partials = _gpu.norm_gradient_partials
rms_norm_gradient = _gpu.rms_norm_gradient


class _BoundOperator:
    """An operator of the library, in the arrays of the caller."""

    def __init__(self, operator: _gpu.GpuOperator, communicator: "Communicator", *, packs: bool = False) -> None:
        """packs: what the ranks gather or exchange has padding, and is copied without it before each run."""
        self._operator = operator
        self._communicator = ref(communicator)
        self._packs = packs
        if not packs:
            self.run = operator.run  # type: ignore[method-assign]  # as fast as it gets
        self.wait = operator.wait
        self.natural = operator.natural
        self.rms_norm = operator.rms_norm
        self.route = operator.route
        self.route_all = operator.route_all

    def run(self, a: Matrix, b: Matrix, out: Matrix | None) -> None:
        """Of what is packed before."""
        problem = self.problem
        if problem.gathered == "b":
            b = packed(b, problem.b_layout)
        else:
            a = packed(a, problem.a_layout)
        self._operator.run(a, b, out)

    def run_and_gather(self, a: Matrix, b: Matrix, out: Matrix | None, keep: bool) -> Matrix:
        if self._packs:  # a, which is what such a problem gathers
            a = packed(a, self.problem.a_layout)
        in_place = self._operator.gathers_in_place and not keep
        gathered = None if in_place else empty_like(a, (self.problem.m, self.problem.k))
        memory = self._operator.run_and_gather(a, b, out, gathered)
        if gathered is not None:
            return gathered
        if memory is not None:
            return from_dlpack(a, memory)
        problem = self.problem  # of one rank
        return a[: problem.out_shape(0)[0]] if problem.capacity > 0 else a

    @property
    def is_captured(self) -> bool:
        return self._operator.is_captured

    def close(self) -> None:
        communicator = self._communicator()
        if communicator is not None and not communicator.is_closed:
            communicator.forget(self)

    def forget(self) -> None:
        """The operator, with everything that refers to it."""
        self.__dict__.clear()

    @property
    def shape(self) -> tuple[int, int]:
        return self._operator.shape

    @property
    def schedule(self) -> Schedule:
        return self._operator.schedule

    @property
    def problem(self) -> Problem:
        return self._operator.problem


class Communicator(NamedCommunicator):
    """One rank of a group of ranks on GPUs. Used by one thread.

    It belongs to the GPU that is current when it is made. Its operators share their memory, and so run on one stream,
    or ordered by the caller. `close` gives the memory back; all ranks call it at about the same time.

    concurrent_collectives: whether other kernels that wait for ranks may run on these GPUs at the same time, on other
    streams, as NCCL's of data parallelism do next to tensor parallelism. Schedules are then chosen that they cannot
    stop. It is so for a process group that has not all ranks, and for a group of fewer ranks that `split` makes.
    """

    _open: "WeakSet[Communicator]" = WeakSet()

    def __init__(
        self,
        key: bytes,
        rank: int,
        ranks: int,
        *,
        wait_limit: float = 30,
        concurrent_collectives: bool = False,
    ) -> None:
        """Rank `rank` of `ranks`, which all pass the same `key` of `make_key`. Collective.

        wait_limit: seconds that a run may take, and that a rank waits for the others, at most a day.
        """
        require_wait_limit(wait_limit)
        self._bind(_gpu.Communicator(key, rank, ranks, wait_limit, concurrent_collectives))

    @staticmethod
    def make_key() -> bytes:
        return _gpu.Communicator.make_key()

    @classmethod
    def from_environment(cls, *, wait_limit: float = 30, concurrent_collectives: bool = False) -> "Communicator":
        """One process per GPU, started by torchrun, mpirun or Slurm. Makes the GPU of the local rank current."""
        require_wait_limit(wait_limit)
        return cls._of(_gpu.Communicator.from_environment(wait_limit, concurrent_collectives))

    @classmethod
    def from_process_group(
        cls, group: "torch.distributed.ProcessGroup | None" = None, *, wait_limit: float = 30
    ) -> "Communicator":
        """The ranks of a process group of `torch.distributed`; None: of all. Collective."""
        require_wait_limit(wait_limit)
        import torch.distributed
        from torch.distributed import distributed_c10d

        of = group or distributed_c10d._get_default_group()
        store = distributed_c10d.PrefixStore("flashoverlap", distributed_c10d._get_process_group_store(of))
        # A group may have several communicators: the first of each rank meet, the second ones, ...
        name = f"key {store.add(f'{of.group_name}, rank {of.rank()}', 1)} of {of.group_name}"
        if of.rank() == 0:
            store.set(name, cls.make_key().hex())
        try:
            store.wait([name], timedelta(seconds=2 * wait_limit))
        except RuntimeError as error:
            raise CommunicationError(
                f"rank {of.rank()} of {of.size()}: rank 0 of {of.group_name} has not come within {2 * wait_limit:g} s"
            ) from error
        return cls(
            bytes.fromhex(store.get(name).decode()),
            of.rank(),
            of.size(),
            wait_limit=wait_limit,
            concurrent_collectives=of.size() < torch.distributed.get_world_size(),
        )

    @classmethod
    def _of(cls, communicator: _gpu.Communicator) -> "Communicator":
        made = cls.__new__(cls)
        made._bind(communicator)
        return made

    def _bind(self, communicator: _gpu.Communicator) -> None:
        self._communicator: Any = communicator
        # As numbers of Python, which torch.compile can follow.
        self._rank, self._ranks, self._device = communicator.rank, communicator.ranks, communicator.device
        self._concurrent_collectives: bool = communicator.concurrent_collectives
        self._workspace: Any = _gpu.SharedWorkspace()
        self._tuner: Any = None
        self._bound: list[_BoundOperator] = []
        self._open.add(self)
        self._register(f"gpu-{self._ranks}_ranks")

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def ranks(self) -> int:
        return self._ranks

    @property
    def device(self) -> int:
        """CUDA's number of the GPU."""
        return self._device

    @property
    def concurrent_collectives(self) -> bool:
        return self._concurrent_collectives

    @property
    def machine(self) -> Machine:
        """What predictions for these GPUs are made from. Collective the first time."""
        return self._its_tuner().machine

    def measure_machine(self) -> Machine:
        """Measures these GPUs, in less than a minute and while nothing else runs on them. Collective.

        It is kept, and predicted from, by every later process with the same kind and number of GPUs, driver, NCCL and
        version of this library.
        """
        for each in self._bound:
            each.wait()
        return self._its_tuner().measure_machine()

    def split(self, color: int) -> "Communicator":
        """Ranks that pass the same color (≥ 0) form a group of their own, in the same order. Collective."""
        self._require_open()
        return self._of(self._communicator.split(require_color(color)))

    def abort(self, reason: str) -> None:
        """Ends everything that is enqueued. Afterwards every call raises CommunicationError with the reason."""
        if not self.is_closed:
            self._communicator.abort(reason)

    def bind(
        self,
        problem: Problem,
        schedule: Schedule | None,
        pitches: tuple[int, int],
        b_is_constant: bool,
        is_read_later: bool,
    ) -> _BoundOperator:
        self._require_open()
        for each in self._bound:  # making an operator runs it, in the memory of all
            each.wait()
        chosen = schedule or self._its_tuner().schedule(problem, "norm" if is_read_later else "caller")
        packs = schedule is None and self._needs_packing(problem, chosen, pitches)
        if packs:
            pitches = (pitches[0], 0) if problem.gathered == "b" else (0, pitches[1])
        operator = _gpu.GpuOperator(
            problem, chosen, self._communicator, self._workspace, pitches, b_is_constant, is_read_later
        )
        self._bound.append(_BoundOperator(operator, self, packs=packs))
        return self._bound[-1]

    def forget(self, bound: _BoundOperator) -> None:
        """An operator that is closed. Collective."""
        for each in self._bound:
            each.wait()
        self._bound.remove(bound)
        bound.forget()
        self._communicator.meet()  # as CUDA may wait for all GPUs of a process to free memory

    def _needs_packing(self, problem: Problem, schedule: Schedule, pitches: tuple[int, int]) -> bool:
        """Whether NCCL gathers or exchanges an operand with padding: it moves rows without."""
        communicates_first = problem.operation in ("all_gather_gemm", "all_to_all_gemm")
        if not communicates_first or schedule.strategy in ("copy", "store"):
            return False
        if problem.gathered == "b":
            shape, layout, pitch = problem.b_shape(self.rank), problem.b_layout, pitches[1]
        else:
            shape, layout, pitch = problem.a_shape(self.rank), problem.a_layout, pitches[0]
        return pitch not in (0, shape[0 if layout == "row_contiguous" else 1])

    @property
    def is_closed(self) -> bool:
        return self._communicator is None

    def close(self) -> None:
        """Gives back all operators, which must not run any more, and their memory. Collective."""
        self._operators.clear()
        self._bound.clear()
        self._tuner = self._workspace = self._communicator = None
        self._open.discard(self)

    def _require_open(self) -> None:
        if self.is_closed:
            raise CommunicationError(f"{self.name} is closed: make another communicator")

    def _its_tuner(self) -> Any:
        self._require_open()
        if self._tuner is None:
            self._tuner = _gpu.GpuTuner(self._communicator)
        return self._tuner

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"<Communicator {self.rank} of {self.ranks} on GPU {self.device}{closed}>"


@atexit.register
def _close_all() -> None:
    """While CUDA still is there. After an error, without waiting for ranks that will not come."""
    for each in sorted(Communicator._open, key=lambda communicator: communicator.number):
        if hasattr(sys, "last_value"):
            each.abort("the program has ended by an error")
        each.close()
