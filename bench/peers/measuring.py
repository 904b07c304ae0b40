"""What the benchmarks of this folder share: ranks, times that compare, and what a result file says.

Import it before PyTorch: it keeps NVLink multicast off.
"""

import ctypes
import importlib.metadata
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

# To call no multimem_* operator is not enough: NCCL uses multicast for its own collectives, and symmetric
# memory sets up a multicast object for whatever memory ranks share.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
os.environ.update(CUBLASMP_DISABLE_MULTICAST="1")

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory
from torch.distributed import _symmetric_memory as symmetric_memory

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("flashoverlap", "torch", "triton", "kraken", "quack-kernels", "nvidia-cublasmp-cu13")
WARM_UP_ROUNDS = 2
HEAD_START_SIZE = 4096  # of a product that takes 0.2 ms
LIMIT = 2e-2  # of the relative difference from plain PyTorch
MEASURED_US = 20_000  # at a time

Result = TypeVar("Result")


class Failed(Exception):
    """Some rank could not do its part; says which, and why."""


class World:
    """The ranks, one process and one GPU each, started by torchrun or scripts/run_ranks.sh. Collective."""

    def __init__(self) -> None:
        if int(os.environ.get("WORLD_SIZE", 0)) < 2:
            raise SystemExit("start this with torchrun or scripts/run_ranks.sh, on two GPUs or more")
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        # A rank that waits for another one in vain is ended then, and its launcher ends the others.
        dist.init_process_group("nccl", device_id=self.device, timeout=timedelta(minutes=5))
        self.group_name: str = dist.group.WORLD.group_name
        # Graphs are captured on it, and gradients wait for the stream of their leaves: so all runs on it.
        torch.cuda.set_stream(torch.cuda.Stream())
        self._token = torch.zeros(1, device=self.device)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        size = (HEAD_START_SIZE, HEAD_START_SIZE)
        self._factor = torch.empty(size, dtype=torch.bfloat16, device=self.device).uniform_(-1, 1)
        self._product = torch.empty_like(self._factor)

    def prepare_symmetric_memory(self, most_bytes: int) -> None:
        """Of one operand or result of all ranks together, at most. Collective.

        PyTorch replaces its workspace by a larger one when it needs to, while peers may still read the old one, which
        ended a block of 16,384 tokens with an illegal access.

        Raises RuntimeError where NVLink multicast would be used.
        """
        if _SymmetricMemory.has_multicast_support(DeviceType.CUDA, self.device.index):
            raise RuntimeError(f"PyTorch {torch.__version__}: must be a version without NVLink multicast")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions can do without
            symmetric_memory.enable_symm_mem_for_group(self.group_name)
            symmetric_memory.get_symm_mem_workspace(self.group_name, most_bytes)

    def print(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def maxima(self, values: list[float]) -> list[float]:
        """Over the ranks, of each value. What is not finite counts as infinite."""
        finite = [value if math.isfinite(value) else math.inf for value in values]
        largest = torch.tensor(finite, dtype=torch.float64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest.tolist()

    def attempt(self, step: Callable[[], Result]) -> Result:
        """What the step returns. Where it raises on one rank, all ranks raise Failed."""
        result, error = None, None
        try:
            result = step()
            torch.cuda.synchronize()
        except Exception as caught:
            error = f"rank {self.rank}: {described(caught)}"
        errors: list[str | None] = [None] * self.ranks
        dist.all_gather_object(errors, error)
        for each in errors:
            if each is not None:
                raise Failed(each)
        return result  # type: ignore[return-value]

    def time_us(self, launch: Callable[[], object]) -> float:
        """On this rank's GPU. All ranks begin together."""
        # While the GPU multiplies the host gets ahead of it, so that first launches from Python are not
        # timed; if it rested instead, it would run at a higher clock afterwards.
        torch.mm(self._factor, self._factor, out=self._product)
        dist.all_reduce(self._token)
        self._begin.record()
        launch()
        self._end.record()
        self._end.synchronize()
        return 1e3 * self._begin.elapsed_time(self._end)

    def medians_us(self, launches: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
        """By name, of the slowest rank in each round. In a round all take turns, in random order."""
        times: dict[str, list[float]] = {name: [] for name in launches}
        draw = random.Random(1)  # the same on all ranks
        for of_round in range(-WARM_UP_ROUNDS, rounds):
            for name in draw.sample(sorted(launches), len(launches)):
                elapsed = self.time_us(launches[name])
                if of_round >= 0:
                    times[name].append(elapsed)
        return {name: statistics.median(self.maxima(each)) for name, each in times.items()}


class Graph:
    """A function in a CUDA graph, and its result there. It is called twice before. Collective."""

    def __init__(self, function: Callable[[], Result]) -> None:
        for _ in range(2):
            function()
        torch.cuda.synchronize()
        dist.barrier()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA meanwhile: one of torch.distributed watches NCCL.
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self.result = function()

    def replay(self) -> None:
        self._graph.replay()


Layer = Callable[[Tensor], Tensor]
Pass = Callable[[], list[Tensor]]


def passes(layers: dict[str, Layer], x: Tensor, weights: list[Tensor]) -> Iterator[tuple[str, dict[str, Pass]]]:
    """Of implementations by name: forward, then training, each as functions that return what is compared."""
    x = x.requires_grad_()
    gradient = torch.randn_like(x)

    def forward(layer: Layer) -> Pass:
        def run() -> list[Tensor]:
            with torch.no_grad():
                return [layer(x)]

        return run

    def training(layer: Layer) -> Pass:
        def run() -> list[Tensor]:
            out = layer(x)
            return [out.detach(), *torch.autograd.grad(out, [x, *weights], gradient)]

        return run

    for name, make in (("forward", forward), ("training", training)):
        yield name, {each: make(layer) for each, layer in layers.items()}


def measure(world: World, functions: dict[str, Pass], rounds: int, *, in_graphs: bool = True) -> dict[str, object]:
    """µs of each, largest difference from "plain", which must be small but for "possible", and peak memory of one
    eager call."""
    plain = [each.clone() for each in functions["plain"]()]
    errors = {}
    for name in functions:  # in the same order on all ranks
        if name in ("plain", "possible"):
            continue
        differences = [relative_difference(*pair) for pair in zip(functions[name](), plain, strict=True)]
        errors[name] = max(world.maxima(differences))
        if errors[name] >= LIMIT:
            raise RuntimeError(f"{name} differs from plain by {errors[name]}: must be less than {LIMIT:g}")
    peaks: dict[str, int] = {}
    launches: dict[str, Callable[[], object]] = {}
    for name, function in functions.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        peaks[name] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
        launches[name] = Graph(function).replay if in_graphs else function
    once = world.maxima([world.time_us(launches["plain"])])[0]
    repetitions = max(2, round(MEASURED_US / once))

    def repeated(launch: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            for _ in range(repetitions):
                launch()

        return run

    times = world.medians_us({name: repeated(launch) for name, launch in launches.items()}, rounds)
    row: dict[str, object] = {f"{name}_us": round(each / repetitions, 1) for name, each in times.items()}
    return row | {"errors": errors, "peak_mib": peaks}


def described(error: Exception) -> str:
    """In a line; of an assertion without words, the line that it is in."""
    words = str(error).partition("\n")[0] or traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {words}"


def relative_difference(value: Tensor, reference: Tensor) -> float:
    """Of Frobenius norms."""
    return ((value.double() - reference.double()).norm() / reference.double().norm()).item()


def output_of(*command: str) -> str:
    """Nothing where the command is not installed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except FileNotFoundError:
        return ""


def nccl_version() -> str:
    """Of the library that is loaded, which may be another one than PyTorch was built with."""
    number = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    return f"{number.value // 10_000}.{number.value // 100 % 100}.{number.value % 100}"


def package_versions() -> dict[str, str]:
    """Of those that are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def machine_record(world: World) -> dict[str, object]:
    """Where and how results were measured, now."""
    fields = "driver_version,clocks.sm,temperature.gpu,power.draw"
    commit = os.environ.get("FLASHOVERLAP_COMMIT") or output_of("git", "describe", "--always", "--dirty")
    script = str(Path(sys.argv[0]).resolve().relative_to(ROOT))
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "gpu": torch.cuda.get_device_name(world.device),
        "gpus": world.ranks,
        "driver_clock_temperature_power": output_of(
            "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"
        ).split("\n"),
        "packages": package_versions(),
        "cuda": torch.version.cuda,
        "nccl": nccl_version(),
        "nccl_environment": {name: value for name, value in os.environ.items() if name.startswith("NCCL_")},
        "commit": commit,
        "command": shlex.join(["torchrun", "--nproc-per-node", str(world.ranks), script, *sys.argv[1:]]),
    }


def write_results(world: World, path: Path | None, rows: list[dict[str, object]]) -> None:
    """On rank 0, where there is a path."""
    if world.rank == 0 and path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine_record(world), "rows": rows}, indent=1) + "\n")


def run(program: Callable[[World], bool]) -> None:
    """Calls `program` on every rank, and ends the process with status 1 where it returns False or raises."""
    try:
        world = World()
        right = program(world)
        dist.destroy_process_group()
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # to tidy up would be to wait for a GPU that may wait for its peers
    sys.exit(0 if right else 1)
