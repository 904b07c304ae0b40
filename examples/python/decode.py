"""Decoding with CUDA graphs: one block of Llama-3 70B, divided among the ranks (tensor parallelism), computes
one new token of each of m sequences. Its two AllReduces are this library's, with the residual and the norm that
follow (`flashoverlap`) and without (`product_alone`), NCCL's, and those of PyTorch's symmetric memory.

    torchrun --nproc-per-node 2 examples/python/decode.py --out out/decode.json

Each kind computes with the same weights and cache, in a CUDA graph of its own. The graphs take turns in
random order, and the table shows the time of one block. Positions are not rotated, which concerns no rank but
its own.
"""

import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# NVLink multicast stays off, for all alike. NCCL and PyTorch read this when they are loaded.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

import flashoverlap.torch as parallel

FEATURES, HIDDEN = 8192, 28672
HEADS, KEY_HEADS, HEAD = 64, 8, 128
EPSILON = 1e-5
LIMIT = 2e-2  # of the relative difference from NCCL's result
ROUNDS, REPLAYS = 15, 20

RowParallel = Callable[[Tensor, Tensor], Tensor]
"""The sum over the ranks of x[m, k] · weight[n, k]ᵀ, of which each rank has a part of k."""

NormalizedRowParallel = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""RMSNorm of that sum + residual, and what is normalised: of x, weight, the norm's weight and the residual."""


def normalized_after(row_parallel: RowParallel) -> NormalizedRowParallel:
    """By PyTorch's own addition and norm."""

    def multiply(x: Tensor, weight: Tensor, norm_weight: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        sum = residual + row_parallel(x, weight)
        return F.rms_norm(sum, (FEATURES,), norm_weight, EPSILON), sum

    return multiply


def row_parallel_kinds(most_rows: int) -> dict[str, NormalizedRowParallel]:
    """By name. most_rows: of any x that follows."""
    group = dist.group.WORLD
    shared = symmetric_memory.empty(most_rows, FEATURES, dtype=torch.bfloat16, device="cuda")
    symmetric_memory.rendezvous(shared, group.group_name)

    # No kernel of a block writes a weight, so ours may be loaded while the kernel before still runs.

    def flashoverlap(
        x: Tensor, weight: Tensor, norm_weight: Tensor, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        return parallel.matmul_all_reduce_rms_norm(
            x, weight, norm_weight, group, residual, epsilon=EPSILON, weight_is_constant=True
        )

    def product_alone(x: Tensor, weight: Tensor) -> Tensor:
        return parallel.matmul_all_reduce(x, weight, group, weight_is_constant=True)

    def nccl(x: Tensor, weight: Tensor) -> Tensor:
        product = x @ weight.t()
        dist.all_reduce(product)
        return product

    def one_shot(x: Tensor, weight: Tensor) -> Tensor:
        product = torch.mm(x, weight.t(), out=shared[: len(x)])
        return torch.ops.symm_mem.one_shot_all_reduce(product, "sum", group.group_name)

    def two_shot(x: Tensor, weight: Tensor) -> Tensor:
        product = torch.mm(x, weight.t(), out=shared[: len(x)])
        return torch.ops.symm_mem.two_shot_all_reduce_(product, "sum", group.group_name)

    others = (product_alone, nccl, one_shot, two_shot)
    return {"flashoverlap": flashoverlap} | {each.__name__: normalized_after(each) for each in others}


class Block:
    """This rank's part of the weights, and the block as a function."""

    def __init__(self) -> None:
        ranks = dist.get_world_size()
        self.heads, self.key_heads = HEADS // ranks, KEY_HEADS // ranks
        self.qkv = draw_weight((self.heads + 2 * self.key_heads) * HEAD, FEATURES)
        self.out = draw_weight(FEATURES, self.heads * HEAD)
        self.gate_up = draw_weight(2 * HIDDEN // ranks, FEATURES)
        self.down = draw_weight(FEATURES, HIDDEN // ranks)
        self.norms = [torch.ones(FEATURES, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def draw_cache(self, sequences: int, length: int) -> Tensor:
        """Keys and values [2, sequences, key heads, length, HEAD]; the last of length are the new token's."""
        shape = (2, sequences, self.key_heads, length, HEAD)
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def __call__(
        self, normalized: Tensor, x: Tensor, cache: Tensor, row_parallel: NormalizedRowParallel
    ) -> tuple[Tensor, Tensor]:
        """x[m, FEATURES]: one token of each sequence, the same on all ranks, as is what is returned: the norm that the
        next block begins with, and x. `normalized` is what the block before has returned."""
        mixed = self.attention(normalized, cache)
        normalized, x = row_parallel(mixed, self.out, self.norms[0], x)
        gate, up = (normalized @ self.gate_up.t()).chunk(2, dim=-1)
        return row_parallel(F.silu(gate) * up, self.down, self.norms[1], x)

    def attention(self, x: Tensor, cache: Tensor) -> Tensor:
        qkv = (x @ self.qkv.t()).view(len(x), -1, HEAD)
        query, key, value = qkv.split([self.heads, self.key_heads, self.key_heads], dim=1)
        keys, values = cache
        keys[:, :, -1] = key
        values[:, :, -1] = value
        mixed = F.scaled_dot_product_attention(query.unsqueeze(2), keys, values, enable_gqa=True)
        return mixed.reshape(len(x), -1)


def draw_weight(rows: int, cols: int) -> Tensor:
    return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * cols**-0.5


def captured(
    function: Callable[[], tuple[Tensor, Tensor]],
) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]]:
    """A graph of what the function does, and where each replay leaves its results."""
    for _ in range(2):  # ours makes and tunes its operators, which a capture cannot
        function()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    # Other threads may use CUDA meanwhile: one of torch.distributed watches NCCL.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph, result


def relative_difference(value: Tensor, reference: Tensor) -> float:
    """Of Frobenius norms."""
    return ((value.float() - reference.float()).norm() / reference.float().norm()).item()


def largest(values: list[float]) -> list[float]:
    """Of each value, over the ranks."""
    of_all = torch.tensor(values, device="cuda")
    dist.all_reduce(of_all, dist.ReduceOp.MAX)
    return of_all.tolist()


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()  # its AllReduces let all ranks go on together
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / REPLAYS


def measure(block: Block, m: int, length: int, kinds: dict[str, NormalizedRowParallel]) -> dict[str, float]:
    """µs of a block by kind, those of the slowest rank. Raises RuntimeError where results differ."""
    x = torch.randn(m, FEATURES, device="cuda", dtype=torch.bfloat16)
    dist.broadcast(x, 0)
    normalized = F.rms_norm(x, (FEATURES,))
    cache = block.draw_cache(m, length)
    graphs, results = {}, {}
    for name, row_parallel in kinds.items():
        graphs[name], results[name] = captured(lambda: block(normalized, x, cache, row_parallel))
        for result in results[name]:
            result.fill_(torch.nan)
        graphs[name].replay()
    for name in kinds:
        differences = list(map(relative_difference, results[name], results["nccl"]))
        if not all(each < LIMIT for each in differences):
            raise RuntimeError(f"{name}, m = {m}: differs by {differences}, must be less than {LIMIT}")
    times: dict[str, list[float]] = {name: [] for name in kinds}
    turns = random.Random(m)  # the same on all ranks
    for _ in range(ROUNDS):
        for name in turns.sample(list(kinds), len(kinds)):
            times[name].append(microseconds(graphs[name]))
    return {name: round(statistics.median(largest(each)), 1) for name, each in times.items()}


def output_of(*command: str) -> str:
    """Of a command that is run where this file is; nothing where it is not installed."""
    try:
        folder = Path(__file__).resolve().parent
        return subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout.strip()
    except FileNotFoundError:
        return ""


def machine_record(length: int) -> dict[str, object]:
    """Where and how the times were measured, now."""
    nccl = ctypes.c_int()  # of the library that is loaded, which may be another one than PyTorch brings
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(nccl))
    driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
    commit = os.environ.get("FLASHOVERLAP_COMMIT") or output_of("git", "describe", "--always", "--dirty")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "gpus": dist.get_world_size(),
        "driver": driver,
        "torch": torch.__version__,
        "nccl": f"{nccl.value // 10_000}.{nccl.value // 100 % 100}.{nccl.value % 100}",
        "commit": commit,
        "length": length,
        "command": " ".join(sys.argv),
    }


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--m", type=int, nargs="+", default=[2**i for i in range(9)], help="sequences")
    parser.add_argument("--length", type=int, default=1024, help="of the cache, in tokens")
    parser.add_argument("--out", type=Path, help="JSON file to write the times to")
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks == 1 or KEY_HEADS % ranks != 0:
        parser.error(f"{ranks} ranks: start this with torchrun on 2, 4 or {KEY_HEADS} GPUs")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(dist.get_rank())
    kinds = row_parallel_kinds(max(options.m))
    block = Block()
    rows = []
    if dist.get_rank() == 0:
        print(f"µs of one block on {ranks} GPUs\n{'m':>5}" + "".join(f"{name:>14}" for name in kinds))
    for m in options.m:
        with torch.no_grad():
            rows.append({"m": m, "times_us": measure(block, m, options.length, kinds)})
        if dist.get_rank() == 0:
            print(f"{m:5}" + "".join(f"{time:14.1f}" for time in rows[-1]["times_us"].values()), flush=True)
    if dist.get_rank() == 0 and options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": machine_record(options.length), "rows": rows}, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
