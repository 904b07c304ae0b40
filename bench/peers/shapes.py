#!/usr/bin/env python3
"""Products that communicate, shape by shape: ours and other libraries in one process per GPU, taking turns in
random order on the same tensors, so at the same clocks.

    torchrun --nproc-per-node 2 bench/peers/shapes.py gemm_all_reduce --out out/shapes.json

As in `flashoverlap bench`, m, n and k describe the product A[m, k] · B[n, k]ᵀ of each rank. Of
all_gather_gemm each rank holds m / ranks rows of A.
"""

import argparse
import importlib
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from case import Case, Shape  # before PyTorch
from measuring import Failed, Graph, World, relative_difference, run, write_results

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

import flashoverlap.torch as ours

LIMIT = 2e-2  # of the relative difference from NCCL's result
GRAPH_US = 1000  # calls that follow each other in a graph take about this long
KRAKEN_TILE = 64  # rows and columns that a block of its AllReduce computes
QUACK_TILE = (128, 256, 2, 1)  # rows, columns and cluster of its benchmark
WIDTH = 13  # of a column of times

Call = Callable[[int], Tensor]
"""Computes the result of a set of operands."""


@dataclass(frozen=True)
class Peer:
    make: Callable[[Case], Call]
    module: str = "torch"  # which it needs
    graph: bool | None = True  # whether a CUDA graph takes it in; None: measured with and without


# torch.mm and NCCL. Each of the two steps is also measured alone: only a faster GEMM or collective can beat the
# longer one.


class OneAfterTheOther:
    """A product and a collective."""

    def __init__(self, op: str, case: Case) -> None:
        self.operands = case.operands
        self.product = case.empty(case.m, case.n)
        self.gathered = case.empty(case.m, case.k).uniform_(-1, 1) if op == "all_gather_gemm" else None
        self.scattered = case.empty(case.shard, case.n) if op == "gemm_reduce_scatter" else None

    def gemm(self, index: int) -> Tensor:
        a, weight = self.operands[index]
        return torch.mm(a if self.gathered is None else self.gathered, weight.t(), out=self.product)

    def communicate(self, index: int) -> Tensor:
        if self.gathered is not None:
            dist.all_gather_into_tensor(self.gathered, self.operands[index][0])
            return self.gathered
        if self.scattered is not None:
            dist.reduce_scatter_tensor(self.scattered, self.product)
            return self.scattered
        dist.all_reduce(self.product)
        return self.product

    def __call__(self, index: int) -> Tensor:
        if self.gathered is not None:
            self.communicate(index)
            return self.gemm(index)
        self.gemm(index)
        return self.communicate(index)


def nccl_call(op: str) -> Callable[[Case], OneAfterTheOther]:
    return lambda case: OneAfterTheOther(op, case)


# Ours. Nothing writes a weight between two calls.


def flashoverlap_call(operation: Callable[..., Tensor]) -> Callable[[Case], Call]:
    def make(case: Case) -> Call:
        group = case.world.group_name
        return lambda index: operation(*case.operands[index], group, weight_is_constant=True)

    return make


# PyTorch's symmetric memory


def async_tp_reduce_scatter(case: Case) -> Call:
    def call(index: int) -> Tensor:
        a, weight = case.operands[index]
        group = case.world.group_name
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, weight.t(), "sum", 0, group)

    return call


def async_tp_all_gather(case: Case) -> Call:
    def call(index: int) -> Tensor:
        a, weight = case.operands[index]
        _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
            a, [weight.t()], 0, case.world.group_name, return_A=False
        )
        return product

    return call


def symmetric_all_reduce(operator: str) -> Callable[[Case], Call]:
    """The product is computed right into symmetric memory."""

    def make(case: Case) -> Call:
        product = case.symmetric(case.m, case.n)
        reduce = getattr(torch.ops.symm_mem, operator)

        def call(index: int) -> Tensor:
            a, weight = case.operands[index]
            torch.mm(a, weight.t(), out=product)
            return reduce(product, "sum", case.world.group_name)

        return call

    return make


# Kraken: fused Triton kernels


def without_descriptors(name: str) -> Callable[..., object]:
    """A function of kraken.fused, which would else keep every operand and result that it has described."""
    function = getattr(importlib.import_module("kraken.fused"), name)
    kept = getattr(sys.modules[function.__module__], "_tma_desc_cache", {})

    def call(*arguments: Tensor) -> object:
        kept.clear()
        return function(*arguments)

    return call


def kraken_reduce_scatter(case: Case) -> Call:
    function = without_descriptors("gemm_reduce_scatter_ce_persistent")

    def call(index: int) -> Tensor:
        a, weight = case.operands[index]
        return function(a, weight.t())

    return call


def kraken_all_reduce(case: Case) -> Call:
    from kraken.fused import gemm_one_shot_all_reduce_fused

    tile = {"BLOCK_SIZE_M": KRAKEN_TILE, "BLOCK_SIZE_N": KRAKEN_TILE}

    def call(index: int) -> Tensor:
        a, weight = case.operands[index]
        return gemm_one_shot_all_reduce_fused(a, weight.t(), **tile)

    return call


def kraken_all_gather(case: Case) -> Call:
    """Its rows of A lie in symmetric memory beforehand."""
    function = without_descriptors("all_gather_matmul")
    shards = [case.symmetric(case.shard, case.k).copy_(a) for a, _ in case.operands]

    def call(index: int) -> Tensor:
        _, product = function(shards[index], case.operands[index][1].t())
        return product

    return call


def make_room_for_kraken(shapes: list[Shape], ranks: int) -> None:
    """For the signals of each block of its AllReduce. Before any symmetric memory is allocated."""
    blocks = max(math.ceil(each.m / KRAKEN_TILE) * math.ceil(each.n / KRAKEN_TILE) for each in shapes)
    least = torch.int32.itemsize * ranks * blocks
    symmetric_memory.set_signal_pad_size(max(symmetric_memory.get_signal_pad_size(), least))


# QuACK: CuTe kernels that read what copy engines gather


def quack_all_gather(case: Case) -> Call:
    from quack.distributed import AllGatherRunner
    from quack.gemm import gemm

    runner = AllGatherRunner(case.shard, case.k, torch.bfloat16, device=case.world.device)
    product = case.empty(case.m, case.n)

    def call(index: int) -> Tensor:
        a, weight = case.operands[index]
        with runner.gather(a) as (gathered, arrivals):
            gemm(gathered, weight, product, None, None, *QUACK_TILE, ag_args=arrivals)
        return product

    return call


# cuBLASMp


def cublasmp_call(op: str) -> Callable[[Case], Call]:
    def make(case: Case) -> Call:
        from cublasmp import Product

        return Product(case, op)

    return make


PEERS = {
    "gemm_reduce_scatter": {
        "flashoverlap": Peer(flashoverlap_call(ours.matmul_reduce_scatter)),
        "nccl": Peer(nccl_call("gemm_reduce_scatter")),
        "async_tp": Peer(async_tp_reduce_scatter),
        "kraken": Peer(kraken_reduce_scatter, "kraken.fused", graph=False),  # streams wait for memory
        "cublasmp": Peer(cublasmp_call("gemm_reduce_scatter"), "cublasmp", graph=None),
    },
    "all_gather_gemm": {
        "flashoverlap": Peer(flashoverlap_call(ours.all_gather_matmul)),
        "nccl": Peer(nccl_call("all_gather_gemm")),
        "async_tp": Peer(async_tp_all_gather),
        "kraken": Peer(kraken_all_gather, "kraken.fused", graph=False),  # streams write memory
        "quack": Peer(quack_all_gather, "quack.distributed"),
        "cublasmp": Peer(cublasmp_call("all_gather_gemm"), "cublasmp", graph=None),
    },
    "gemm_all_reduce": {
        "flashoverlap": Peer(flashoverlap_call(ours.matmul_all_reduce)),
        "nccl": Peer(nccl_call("gemm_all_reduce")),
        "one_shot": Peer(symmetric_all_reduce("one_shot_all_reduce")),
        "two_shot": Peer(symmetric_all_reduce("two_shot_all_reduce_")),
        "kraken": Peer(kraken_all_reduce, "kraken.fused"),
        "cublasmp": Peer(cublasmp_call("gemm_all_reduce"), "cublasmp", graph=None),
    },
}


# Measuring


def usable(world: World, peers: dict[str, Peer], shapes: list[Shape]) -> dict[str, Peer]:
    """Those that are installed, prepared for these shapes."""
    found = {}
    for name, peer in peers.items():

        def prepare() -> None:
            importlib.import_module(peer.module)
            if peer.make is kraken_all_reduce:
                make_room_for_kraken(shapes, world.ranks)

        try:
            world.attempt(prepare)
            found[name] = peer
        except Failed as failed:
            world.print(f"{name} is left out: {failed}")
    return found


def expect_close(world: World, result: Callable[[], Tensor], reference: Tensor) -> float:
    """The relative difference, the largest of all ranks. Raises Failed where it is too large."""
    difference = world.maxima([world.attempt(lambda: relative_difference(result(), reference))])[0]
    if difference >= LIMIT:
        raise Failed(f"differs from nccl by {difference:.1e}: must be less than {LIMIT:g}")
    return difference


def replayed(graph: Graph) -> Tensor:
    graph.result.fill_(math.nan)
    graph.replay()
    return graph.result


def measure(world: World, op: str, shape: Shape, peers: dict[str, Peer], rounds: int) -> dict[str, object]:
    """A row of the results."""
    case = world.attempt(lambda: Case(world, op, shape))
    nccl = world.attempt(lambda: OneAfterTheOther(op, case))
    last = case.sets - 1
    reference = world.attempt(lambda: nccl(last).clone())
    elapsed = world.time_us(lambda: [nccl(index) for index in range(case.sets)])
    calls = case.sets * max(1, round(GRAPH_US / world.maxima([elapsed])[0]))
    made: dict[str, Call] = {}
    launches: dict[str, Callable[[], object]] = {}
    eager: list[str] = []
    differences: dict[str, float] = {}
    errors: dict[str, str] = {}

    def make(name: str) -> None:
        made[name] = world.attempt(lambda: peers[name].make(case))
        differences[name] = expect_close(world, lambda: made[name](last), reference)

    def launch(name: str) -> None:
        def repeat() -> Tensor:
            for index in range(calls):
                result = made[name](index % case.sets)
            return result

        in_graph = peers[name].graph
        ways: list[Callable[[], object]] = [] if in_graph else [repeat]
        if in_graph is not False:
            try:
                graph = world.attempt(lambda: Graph(repeat))
                expect_close(world, lambda: replayed(graph), reference)
                ways.append(graph.replay)
            except Failed as failed:
                if in_graph:
                    raise
                world.print(f"{name} at {shape.m} {shape.n} {shape.k}, no graph: {failed}")
                expect_close(world, lambda: made[name](last), reference)  # it may have broken more
        launches[name] = min(ways, key=lambda way: world.maxima([world.time_us(way)])[0])
        if launches[name] is repeat:
            eager.append(name)

    # All are called before any is captured: PyTorch's symmetric memory grows with what is called, and graphs
    # of the smaller one would be left with memory that is gone.
    for step in (make, launch):
        for name in [name for name in peers if name not in errors]:
            try:
                step(name)
            except Failed as failed:
                errors[name] = str(failed)
                world.print(f"{name} at {shape.m} {shape.n} {shape.k}: {failed}")

    def alone(step: Call) -> Callable[[], object]:
        return world.attempt(lambda: Graph(lambda: [step(index % case.sets) for index in range(calls)])).replay

    steps = {"gemm": alone(nccl.gemm), "communication": alone(nccl.communicate)}
    times = world.medians_us(launches | steps, rounds)
    row = {
        "op": op,
        "ranks": world.ranks,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "times_us": {name: round(times[name] / calls, 2) for name in launches},
        "alone_us": {name: round(times[name] / calls, 2) for name in steps},
        "eager": eager,
        "differences": {name: float(f"{differences[name]:.1e}") for name in launches},
        "errors": errors,
    }
    launches.clear()  # graphs, before the memory that they use
    steps.clear()
    for call in made.values():
        getattr(call, "close", lambda: None)()
    return row


def line(row: dict, names: list[str]) -> str:
    times = row["times_us"]
    shown = "".join(f"{times[name]:{WIDTH}.1f}" if name in times else f"{'-':>{WIDTH}}" for name in names)
    return f"{row['m']:6}{row['n']:7}{row['k']:7}{shown}  {','.join(row['eager'])}"


def summary(rows: list[dict]) -> str:
    """How often ours is first, and how much slower it is at worst."""
    ratios = []
    for row in rows:
        others = [time for name, time in row["times_us"].items() if name != "flashoverlap"]
        if "flashoverlap" in row["times_us"] and others:
            ratios.append(row["times_us"]["flashoverlap"] / min(others))
    if not ratios:
        return "flashoverlap was measured on no shape next to another"
    first = sum(ratio <= 1 for ratio in ratios)
    return (
        f"flashoverlap is first on {first} of {len(rows)} shapes;"
        f" at worst it takes {max(ratios):.3f} times as long as the fastest other"
    )


def layer_shapes(op: str, ranks: int) -> list[Shape]:
    """Those of `flashoverlap bench`: layers of Llama-3 8B, 70B (two) and 405B, shared out among the ranks."""
    layers = [(4096, 14336), (8192, 28672), (8192, 8192), (16384, 53248)]
    shapes = [(n, k // ranks // 8 * 8) for n, k in layers]
    if op == "all_gather_gemm":
        shapes = [(k, n) for n, k in shapes]
    return [Shape(m, n, k) for n, k in shapes for m in (1024, 2048, 4096, 8192, 16384)]


def random_shapes(ranks: int, count: int, seed: int) -> list[Shape]:
    """From few rows to long sequences, and of layers of any width; small ones as often as large ones."""
    generator = random.Random(seed)

    def draw(least: int, most: int, multiple: int) -> int:
        drawn = math.exp(generator.uniform(math.log(least), math.log(most)))
        return multiple * max(1, round(drawn / multiple))

    return [
        Shape(draw(256, 16384, ranks), draw(512, 30000, 8 * ranks), draw(512, 30000, 8 * ranks))
        for _ in range(count)
    ]


def shape_list(text: str) -> list[Shape]:
    shapes = [Shape(*map(int, each.split(","))) for each in text.split(";")]
    if any(min(each.m, each.n, each.k) < 1 or each.n % 8 or each.k % 8 for each in shapes):
        raise argparse.ArgumentTypeError("n and k must be multiples of 8, and all at least 1")
    return shapes


def parse_arguments() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("op", choices=PEERS)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--shapes", type=shape_list, metavar="M,N,K;...", help="by default layers of Llama-3")
    which.add_argument("--random", type=int, default=0, metavar="N", help="this many random shapes instead")
    parser.add_argument("--seed", type=int, default=0, help="of random shapes")
    parser.add_argument("--rounds", type=int, default=21, help="in each of which all take turns")
    parser.add_argument("--out", type=Path, help="JSON file to write the figures to")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    drawn = random_shapes(ranks, arguments.random, arguments.seed)
    arguments.shapes = arguments.shapes or drawn or layer_shapes(arguments.op, ranks)
    if arguments.op != "gemm_all_reduce" and any(each.m % ranks for each in arguments.shapes):
        parser.error(f"--shapes: m must be a multiple of the {ranks} ranks")
    if os.environ.get("NCCL_P2P_DISABLE") == "1":
        parser.error("NCCL_P2P_DISABLE=1 slows down NCCL but not symmetric memory")
    return arguments


def main() -> None:
    arguments = parse_arguments()

    def program(world: World) -> bool:
        op, rounds = arguments.op, arguments.rounds
        peers = usable(world, PEERS[op], arguments.shapes)
        world.prepare_symmetric_memory(2 * max(shape.m * max(shape.n, shape.k) for shape in arguments.shapes))
        names = list(peers)
        world.print(f"{op} on {world.ranks} GPUs, bf16; µs of the slowest rank, median of {rounds} rounds")
        world.print(f"{'m':>6}{'n':>7}{'k':>7}{''.join(f'{name:>{WIDTH}}' for name in names)}  without graph")
        rows: list[dict[str, object]] = []
        for shape in arguments.shapes:
            rows.append(measure(world, op, shape, peers, rounds))
            world.print(line(rows[-1], names))
            write_results(world, arguments.out, rows)
            torch.cuda.empty_cache()
        world.print(summary(rows))
        return all("flashoverlap" in row["times_us"] for row in rows)

    run(program)


if __name__ == "__main__":
    main()
