#!/usr/bin/env python3
"""One Llama block with tensor and sequence parallelism: ours, plain PyTorch with NCCL, PyTorch's async-TP, and
what would be possible without communication, in one process, taking turns in random order on the same tensors.

    torchrun --nproc-per-node 2 bench/peers/blocks.py --model 8b 70b --tokens 4096 8192 --out out/block.json

All compute the same: outputs and gradients are compared with plain PyTorch's before anything is measured. All are
replayed from CUDA graphs. Peak memory is that of one eager call. Ours is measured twice: `ours` is made of what our
layers are made of, with their activation and their RMSNorm that adds the residual; `ours_products` differs from plain
PyTorch in its products alone.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from measuring import Layer, World, measure, passes, run, write_results  # before PyTorch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import flashoverlap.torch as ours

HEAD = 128
SEQUENCE = 4096
EPSILON = 1e-5


@dataclass(frozen=True)
class Model:
    features: int
    hidden: int
    heads: int
    key_heads: int


MODELS = {"8b": Model(4096, 14336, 32, 8), "70b": Model(8192, 28672, 64, 8)}


# Parts that differ. `column` gathers rows of x before the product, `row` reduces and scatters them after it.


class Gather(torch.autograd.Function):
    """Gathers rows; the gradient is reduced and scattered."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(x.shape[0] * dist.get_world_size(), x.shape[1])
        dist.all_gather_into_tensor(whole, x)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        part = gradient.new_empty(gradient.shape[0] // dist.get_world_size(), gradient.shape[1])
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        return part


class Scatter(torch.autograd.Function):
    """The inverse of `Gather`."""

    @staticmethod
    def forward(ctx, x):
        return Gather.backward(ctx, x)

    @staticmethod
    def backward(ctx, gradient):
        return Gather.forward(ctx, gradient.contiguous())


@cache
def rows_of_all(rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    """What stands for gathered rows: numbers like them, as products of zeros or NaN take less power and time."""
    return torch.randn(rows * dist.get_world_size(), cols, device="cuda", dtype=dtype)


class GatherNothing(torch.autograd.Function):
    """As if others' rows were there already."""

    @staticmethod
    def forward(ctx, x):
        return rows_of_all(*x.shape, x.dtype).detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient[: gradient.shape[0] // dist.get_world_size()]


class ScatterNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[: x.shape[0] // dist.get_world_size()].clone()

    @staticmethod
    def backward(ctx, gradient):
        return GatherNothing.forward(ctx, gradient)


def group_name() -> str:
    return dist.group.WORLD.group_name


class AsyncColumn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        training = ctx.needs_input_grad[1]
        whole, (out,) = torch.ops.symm_mem.fused_all_gather_matmul(
            x, [weight.t()], 0, group_name(), return_A=training
        )
        ctx.save_for_backward(whole, weight)
        return out

    @staticmethod
    def backward(ctx, gradient):
        whole, weight = ctx.saved_tensors
        of_x = torch.ops.symm_mem.fused_matmul_reduce_scatter(gradient, weight, "sum", 0, group_name())
        return of_x, gradient.t() @ whole


class AsyncRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weight.t(), "sum", 0, group_name())

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        whole, (of_x,) = torch.ops.symm_mem.fused_all_gather_matmul(
            gradient.contiguous(), [weight], 0, group_name(), return_A=True
        )
        return of_x, whole.t() @ x


def plain_swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


@dataclass(frozen=True)
class Parts:
    """Of a block, as one implementation has them. What is not here is the same in all."""

    column: Callable[[Tensor, Tensor], Tensor]
    row: Callable[[Tensor, Tensor], Tensor]
    activate: Callable[[Tensor], Tensor] = plain_swiglu
    row_norm: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    """The RMSNorm of `row` and the residual, and their sum, if in one pass."""

    def normed_row(self, x: Tensor, weight: Tensor, norm: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        if self.row_norm is not None:
            return self.row_norm(x, weight, norm, residual)
        total = residual + self.row(x, weight)
        return F.rms_norm(total, norm.shape, norm, EPSILON), total


def all_parts(group: str, ranks: int) -> dict[str, Parts]:
    """`ours` is made of what our layers are; `ours_products` has PyTorch's activation and norms, as all others have."""
    keeps = ranks > 2  # what was gathered: saves time on 4 GPUs, not on 2, and takes memory

    def column(x: Tensor, weight: Tensor) -> Tensor:
        return ours.all_gather_matmul(x, weight, group, keep_gathered=keeps)

    def row(x: Tensor, weight: Tensor) -> Tensor:
        return ours.matmul_reduce_scatter(x, weight, group)

    def row_norm(x: Tensor, weight: Tensor, norm: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return ours.matmul_reduce_scatter_rms_norm(x, weight, norm, group, residual, epsilon=EPSILON)

    return {
        "plain": Parts(lambda x, w: Gather.apply(x) @ w.t(), lambda x, w: Scatter.apply(x @ w.t())),
        "possible": Parts(lambda x, w: GatherNothing.apply(x) @ w.t(), lambda x, w: ScatterNothing.apply(x @ w.t())),
        "async_tp": Parts(AsyncColumn.apply, AsyncRow.apply),
        "ours_products": Parts(column, row),
        "ours": Parts(column, row, ours.swiglu, row_norm),
    }


# The block


class Weights:
    """This rank's part of a block's weights."""

    def __init__(self, model: Model, ranks: int):
        def draw(rows: int, cols: int) -> Tensor:
            weight = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * cols**-0.5
            return weight.requires_grad_()

        rows_of_qkv = (model.heads + 2 * model.key_heads) * HEAD // ranks
        self.qkv = draw(rows_of_qkv, model.features)
        self.out = draw(model.features, model.features // ranks)
        self.gate_up = draw(2 * model.hidden // ranks, model.features)
        self.down = draw(model.features, model.hidden // ranks)
        self.norms = [
            torch.ones(model.features, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2)
        ]

    def all(self) -> list[Tensor]:
        return [self.qkv, self.out, self.gate_up, self.down, *self.norms]


def attention(qkv: Tensor, model: Model, ranks: int) -> Tensor:
    heads, key_heads = model.heads // ranks, model.key_heads // ranks
    batch = max(1, qkv.shape[0] // SEQUENCE)
    split = qkv.view(batch, -1, heads + 2 * key_heads, HEAD).transpose(1, 2)
    query, key, value = split.split([heads, key_heads, key_heads], dim=1)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return mixed.transpose(1, 2).reshape(qkv.shape[0], heads * HEAD)


def block(x: Tensor, weights: Weights, model: Model, ranks: int, parts: Parts) -> Tensor:
    features = (model.features,)
    normed = F.rms_norm(x, features, weights.norms[0], EPSILON)
    attended = attention(parts.column(normed, weights.qkv), model, ranks)
    normed, x = parts.normed_row(attended, weights.out, weights.norms[1], x)
    return x + parts.row(parts.activate(parts.column(normed, weights.gate_up)), weights.down)


# Measuring


def implementations(model: Model, ranks: int, parts: dict[str, Parts]) -> tuple[dict[str, Layer], list[Tensor]]:
    """The block by each, and its weights."""
    weights = Weights(model, ranks)

    def using(each: Parts) -> Layer:
        return lambda x: block(x, weights, model, ranks, each)

    return {name: using(each) for name, each in parts.items()}, weights.all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 8192, 16384])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--out", type=Path, help="JSON file to write the figures to")
    arguments = parser.parse_args()

    def program(world: World) -> bool:
        most_features = max(MODELS[name].features for name in arguments.model)
        world.prepare_symmetric_memory(2 * max(arguments.tokens) * most_features)
        torch.manual_seed(arguments.seed + world.rank)
        parts = all_parts(world.group_name, world.ranks)
        rows = []
        for name in arguments.model:
            for tokens in arguments.tokens:
                model = MODELS[name]
                layers, weights = implementations(model, world.ranks, parts)
                x = torch.randn(tokens // world.ranks, model.features, device="cuda", dtype=torch.bfloat16)
                for which, functions in passes(layers, x, weights):
                    row = {"model": name, "tokens": tokens, "ranks": world.ranks, "pass": which}
                    row |= measure(world, functions, arguments.rounds)
                    rows.append(row)
                    gains = {k: row["plain_us"] / row[f"{k}_us"] for k in parts if k != "plain"}
                    shown = "  ".join(f"{k} {v:.2f}x" for k, v in gains.items())
                    world.print(f"{name:4} {tokens:6} {which:9} plain {row['plain_us']:9.1f} us  {shown}")
                    write_results(world, arguments.out, rows)
                torch.cuda.empty_cache()
        return True

    run(program)


if __name__ == "__main__":
    main()
