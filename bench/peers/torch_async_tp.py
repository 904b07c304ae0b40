#!/usr/bin/env python3
"""PyTorch's async tensor parallelism next to cuBLAS and NCCL, measured like `flashoverlap bench`.

    scripts/run_ranks.sh 4 bench/peers/torch_async_tp.py gemm_reduce_scatter --m 2048,8192
"""

import argparse
import itertools
import json
import math
import os
import random
import sys
import time
import warnings
from collections import namedtuple
from datetime import timedelta

# NVLink multicast stays off. To call no multimem_* operator is not enough for that: NCCL uses it for its own
# collectives, and symmetric memory sets up a multicast object for whatever memory ranks share.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")

import torch
import torch.distributed as dist

OPERATORS = {"gemm_reduce_scatter": "fused_matmul_reduce_scatter",
             "all_gather_gemm": "fused_all_gather_matmul"}
DATA_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ERROR_LIMIT = 1e-2
WARM_UPS = 2
TRIAL_REPETITIONS = 5
AFFORDABLE_US = 500_000
ROTATED_BYTES = 200 << 20  # several times the L2 cache
HEAD_START_SIZE = 4096  # of a product that takes 0.2 ms
HEADERS = ("op                       m      n      k |  gemm us  comm us   seq us | strategy       | "
           " overlap      p10      p90 | speedup bound_share    error")
ROW = ("{op:<19} {m:>6} {n:>6} {k:>6} | {gemm_us:>8.1f} {comm_us:>8.1f} {sequential_us:>8.1f} | "
       "{strategy:<14} | {overlap_us:>8.1f} {p10_us:>8.1f} {p90_us:>8.1f} | "
       "{speedup:>7.3f} {bound_share:>11.3f} {error:>8.1e}")

Problem = namedtuple("Problem", "op m n k ranks dtype")


class ShapeFailed(Exception):
    """Some rank could not do its part, and has said why."""


class World:
    """The ranks, one process and one GPU each."""

    def __init__(self):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        # A rank that waits for another one in vain is ended after this time, and its launcher ends the others.
        dist.init_process_group("nccl", timeout=timedelta(minutes=2))
        self.group_name = dist.group.WORLD.group_name
        self.token = torch.zeros(1, device=self.device)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        size = (HEAD_START_SIZE, HEAD_START_SIZE)
        self.factor = torch.empty(size, dtype=torch.bfloat16, device=self.device).uniform_(-1, 1)
        self.product = torch.empty_like(self.factor)

    def print(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def maxima(self, values):
        largest = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest.tolist()

    def attempt(self, subject, step):
        """The result of a step. Where it fails on one rank, all give it up together."""
        result, error = None, ""
        try:
            result = step()
            torch.cuda.synchronize()
        except Exception as caught:
            error = describe(caught)
        first_failed = self.ranks - int(self.maxima([self.ranks - self.rank if error else 0])[0])
        if first_failed == self.rank:
            print(f"{subject}: rank {self.rank}: {error}", file=sys.stderr, flush=True)
        if first_failed < self.ranks:
            raise ShapeFailed
        return result

    def elapsed_us(self, launch):
        # While the GPU multiplies the host gets ahead of it, so that launches from Python are not timed; if it
        # slept instead, it would run at a higher clock afterwards. After the collective all ranks begin
        # together.
        torch.mm(self.factor, self.factor, out=self.product)
        dist.all_reduce(self.token)
        self.begin.record()
        launch()
        self.end.record()
        self.end.synchronize()
        return 1e3 * self.begin.elapsed_time(self.end)

    def interleave(self, variants, sets, repetitions):
        """Times of each variant by repetition, of the slowest rank."""
        samples = [[] for _ in variants]
        turns = list(zip(variants, samples))
        orders = random.Random(1)  # all ranks draw the same
        launches = itertools.count()
        for repetition in range(-WARM_UPS, repetitions):
            orders.shuffle(turns)
            for variant, times in turns:
                # Another set at every launch, lest only the first of a repetition miss the cache.
                chosen = next(launches) % sets
                elapsed = self.elapsed_us(lambda: variant(chosen))
                if repetition >= 0:
                    times.append(elapsed)
        return [self.maxima(times) for times in samples]


class Operation:
    """What is measured, on sets of operands in rotation."""

    def __init__(self, world, problem):
        self.group_name = world.group_name
        self.gathers = problem.op == "all_gather_gemm"
        self.fused = getattr(torch.ops.symm_mem, OPERATORS[problem.op])
        dtype = DATA_TYPES[problem.dtype]
        shard_rows = problem.m // problem.ranks
        a_rows = shard_rows if self.gathers else problem.m
        set_bytes = (a_rows + problem.n) * problem.k * dtype.itemsize
        self.sets = min(max(ROTATED_BYTES // set_bytes + 1, 2), 8)

        def matrix(rows, cols):
            return torch.empty(rows, cols, dtype=dtype, device=world.device).uniform_(-1, 1)

        torch.cuda.manual_seed(1 + world.rank)
        self.operands = [(matrix(a_rows, problem.k), matrix(problem.n, problem.k).t())
                         for _ in range(self.sets)]
        self.product = matrix(problem.m, problem.n)
        self.gathered = matrix(problem.m, problem.k) if self.gathers else None
        self.result = self.product if self.gathers else matrix(shard_rows, problem.n)
        self.graphs = []  # for each set, with its result

    def gemm(self, index):
        a, b = self.operands[index]
        torch.mm(self.gathered if self.gathers else a, b, out=self.product)

    def communicate(self, index):
        if self.gathers:
            dist.all_gather_into_tensor(self.gathered, self.operands[index][0])
        else:
            dist.reduce_scatter_tensor(self.result, self.product)

    def sequential(self, index):
        for step in (self.communicate, self.gemm) if self.gathers else (self.gemm, self.communicate):
            step(index)

    def overlapped(self, index):
        a, b = self.operands[index]
        if self.gathers:
            # return_A stays True: without the gathered operand some versions choose multimem for few rows.
            return self.fused(a, [b], gather_dim=0, group_name=self.group_name)[1][0]
        return self.fused(a, b, "sum", scatter_dim=0, group_name=self.group_name)

    def replay(self, index):
        self.graphs[index][0].replay()

    def capture(self):
        self.sequential(0)
        self.overlapped(0)  # memory that ranks share cannot grow during a capture
        for index in range(self.sets):
            graph = torch.cuda.CUDAGraph()
            # Other threads may use CUDA meanwhile: one of torch.distributed watches NCCL.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                result = self.overlapped(index)
            self.graphs.append((graph, result))

    def error(self):
        """Relative, from the sequential result; the largest of all sets."""
        errors = []
        for index, (graph, result) in enumerate(self.graphs):
            result.fill_(math.nan)
            graph.replay()
            self.sequential(index)
            expected = self.result.float()
            errors.append(((result.float() - expected).norm() / expected.norm()).item())
        return max(error if math.isfinite(error) else math.inf for error in errors)


def describe(error):
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def measure(world, problem, repetitions):
    subject = f"{problem.op} {problem.m} {problem.n} {problem.k}"
    operation = world.attempt(subject, lambda: Operation(world, problem))
    world.attempt(subject, operation.capture)
    error = world.maxima([world.attempt(subject, operation.error)])[0]

    def samples():
        variants = (operation.gemm, operation.communicate, operation.sequential, operation.replay)
        trial = world.interleave(variants, operation.sets, TRIAL_REPETITIONS)
        fitting = int(AFFORDABLE_US / sum(quantile(times, 0.5) for times in trial))
        return world.interleave(variants, operation.sets, repetitions or min(max(fitting, 9), 51))

    *separate, overlap = world.attempt(subject, samples)
    gemm, communication, sequential = (quantile(times, 0.5) for times in separate)
    median = quantile(overlap, 0.5)
    return problem._asdict() | {
        "fabric": "nvlink", "strategy": "torch_async_tp", "gemm_us": gemm, "comm_us": communication,
        "sequential_us": sequential, "overlap_us": median, "p10_us": quantile(overlap, 0.1),
        "p90_us": quantile(overlap, 0.9), "speedup": sequential / median,
        "bound_share": max(gemm, communication) / median, "error": error}


def output_of(command):
    return os.popen(f"{command} 2>/dev/null").read().strip()


def gpu_state():
    fields = "driver_version,clocks.sm,temperature.gpu,power.draw"
    return output_of(f"nvidia-smi -i 0 --query-gpu={fields} --format=csv,noheader")


def machine_record(world, given):
    major, minor, patch = torch.cuda.nccl.version()[:3]
    options = {"m": ",".join(map(str, given.m)), "n": given.n, "k": given.k, "dtype": given.dtype,
               "repetitions": given.repetitions}
    command = f"scripts/run_ranks.sh {world.ranks} bench/peers/torch_async_tp.py {given.op}"
    return {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "gpu": torch.cuda.get_device_name(world.device),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": major * 10_000 + minor * 100 + patch,
            "commit": output_of(f"git -C {os.path.dirname(os.path.abspath(__file__))} describe --always --dirty"),
            "driver_clock_temperature_power": {"before": gpu_state()},
            "gpus": world.ranks,
            "fabric": "nvlink",
            "command": command + "".join(f" --{name} {value}" for name, value in options.items() if value)}


def problems(given, ranks):
    """Those of `flashoverlap bench`: layers of Llama-3 8B, 70B (two) and 405B, shared out among the ranks."""
    layers = [(4096, 14336), (8192, 28672), (8192, 8192), (16384, 53248)]
    shapes = [(n, k // ranks // 8 * 8) for n, k in layers]
    if given.op == "all_gather_gemm":
        shapes = [(k, n) for n, k in shapes]
    if given.n:
        shapes = [(given.n, given.k)]
    return [Problem(given.op, m, n, k, ranks, given.dtype) for n, k in shapes for m in given.m]


def prepare_symmetric_memory(world, op):
    from torch._C._autograd import DeviceType
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory as symmetric_memory

    if _SymmetricMemory.has_multicast_support(DeviceType.CUDA, world.device.index):
        raise RuntimeError("NVLink multicast cannot be switched off in this version")
    if not hasattr(torch.ops.symm_mem, OPERATORS[op]):
        raise RuntimeError(f"no torch.ops.symm_mem.{OPERATORS[op]} in this version")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer versions can do without
        if hasattr(symmetric_memory, "enable_symm_mem_for_group"):
            symmetric_memory.enable_symm_mem_for_group(world.group_name)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("op", choices=OPERATORS)
    parser.add_argument("--m", type=lambda text: [int(part) for part in text.split(",")],
                        default=[1024, 2048, 4096, 8192, 16384], help="rows of A and C")
    parser.add_argument("--n", type=int, default=0, help="columns of C; by default those of Llama-3's layers")
    parser.add_argument("--k", type=int, default=0, help="columns of A on each rank, with --n")
    parser.add_argument("--dtype", choices=DATA_TYPES, default="bf16")
    parser.add_argument("--repetitions", type=int, default=0, help="by default as many as fit half a second")
    parser.add_argument("--json", help="file to write the figures to")
    given = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", 0))
    if ranks < 2:
        parser.error("start this with scripts/run_ranks.sh or torchrun, on two GPUs or more")
    if (given.n > 0) != (given.k > 0):
        parser.error("--n and --k must be given together")
    if any(rows <= 0 or rows % ranks for rows in given.m):
        parser.error(f"--m must be multiples of {ranks}, the number of ranks")
    if os.environ.get("NCCL_P2P_DISABLE") == "1":
        parser.error("NCCL_P2P_DISABLE=1 slows down NCCL but not symmetric memory")
    return given


def run(given):
    """Whether every shape was measured and right."""
    world = World()
    rows, right = [], True
    try:
        world.attempt(f"PyTorch {torch.__version__}", lambda: prepare_symmetric_memory(world, given.op))
    except ShapeFailed:
        return False
    machine = machine_record(world, given)
    world.print(f"{world.ranks} GPUs, nvlink, {given.dtype}; "
                f"times of the slowest rank, median, 10 % and 90 %\n{HEADERS}")
    for problem in problems(given, world.ranks):
        try:
            rows.append(measure(world, problem, given.repetitions))
            world.print(ROW.format(**rows[-1]))
            right = right and rows[-1]["error"] < ERROR_LIMIT
        except ShapeFailed:
            right = False
        torch.cuda.empty_cache()
    machine["driver_clock_temperature_power"]["after"] = gpu_state()
    if given.json and world.rank == 0:
        with open(given.json, "w", encoding="utf-8") as file:
            file.write(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return right


if __name__ == "__main__":
    arguments = parse_arguments()
    try:
        status = 0 if run(arguments) else 1
        dist.destroy_process_group()
    except Exception as failure:
        print(f"rank {os.environ['RANK']}: {describe(failure)}", file=sys.stderr, flush=True)
        os._exit(1)  # to tidy up would be to wait for a GPU that may wait for its peers
    sys.exit(status)
