"""What the libraries of shapes.py compute: a product and its operands."""

from dataclasses import dataclass

from measuring import World  # before PyTorch

import torch
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

ROTATED_BYTES = 200 << 20  # several times the L2 cache


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int


class Case:
    """Operands of a shape on this rank: several sets, which together are more than the L2 cache holds."""

    def __init__(self, world: World, op: str, shape: Shape) -> None:
        self.world, self.m, self.n, self.k = world, shape.m, shape.n, shape.k
        self.shard = self.m // world.ranks
        a_rows = self.shard if op == "all_gather_gemm" else self.m
        set_bytes = (a_rows + self.n) * self.k * torch.bfloat16.itemsize
        self.sets = min(max(ROTATED_BYTES // set_bytes + 1, 2), 8)
        torch.cuda.manual_seed(1 + world.rank)
        self.operands = [
            (self.empty(a_rows, self.k).uniform_(-1, 1), self.empty(self.n, self.k).uniform_(-1, 1))
            for _ in range(self.sets)
        ]

    def empty(self, rows: int, cols: int) -> Tensor:
        return torch.empty(rows, cols, dtype=torch.bfloat16, device=self.world.device)

    def symmetric(self, rows: int, cols: int) -> Tensor:
        """Memory that all ranks address. Collective."""
        memory = symmetric_memory.empty(rows, cols, dtype=torch.bfloat16, device=self.world.device)
        symmetric_memory.rendezvous(memory, self.world.group_name)
        return memory
