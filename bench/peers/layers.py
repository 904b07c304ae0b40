#!/usr/bin/env python3
"""Layers that exchange rows or heads: ours next to plain PyTorch with NCCL, and what would be possible without
communication, in one process, taking turns in random order on the same tensors.

    torchrun --nproc-per-node 2 bench/peers/layers.py attention experts --out out/layers.json

attention: Ulysses, from CUDA graphs, for some numbers of query slices. experts: a mixture of experts whose router
chooses anew in every call, so that routes are read on the host, in plain PyTorch as in ours. Outputs and gradients are
compared with plain PyTorch's before anything is measured.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import Layer, World, measure, passes, run, write_results  # before PyTorch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import flashoverlap.torch as ours
from flashoverlap.torch.experts import weighted_sum


class Exchange(torch.autograd.Function):
    """Of rows that are sorted by rank: `sent` to each, `received` from each; even parts where these are not given."""

    @staticmethod
    def forward(ctx, x, sent, received):
        ctx.splits = received, sent
        out = x.new_empty(len(x) if received is None else sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.forward(ctx, gradient, *ctx.splits), None, None


def exchange_nothing(x: Tensor, sent: list[int] | None = None, received: list[int] | None = None) -> Tensor:
    """As if others' rows were there already."""
    return x


# Attention


@dataclass(frozen=True)
class Attention:
    features: int
    heads: int
    key_heads: int


ATTENTIONS = {"8b": Attention(4096, 32, 8), "70b": Attention(8192, 64, 8)}
SLICES = (1, 2, 4)


def plain_attention(layer: ours.UlyssesAttention, x: Tensor, exchange: Callable[..., Tensor]) -> Tensor:
    ranks, own = dist.get_world_size(), len(x)
    rows = x.reshape(own, -1) @ layer.qkv_weight.t()
    heads = exchange(rows.view(own, ranks, -1).transpose(0, 1).contiguous()).view(ranks * own, 1, -1)
    split = heads.view(len(heads), 1, -1, layer.queries_per_key + 2, layer.head_features).permute(1, 2, 3, 0, 4)
    query, key, value = split.split([layer.queries_per_key, 1, 1], dim=2)
    attended = layer.attend(query.flatten(1, 2), key.squeeze(2), value.squeeze(2))
    rows = exchange(attended.permute(2, 0, 1, 3).reshape(ranks, own, -1))
    return (rows.transpose(0, 1).reshape(own, -1) @ layer.out_weight.t()).view(x.shape)


def attentions(name: str, world: World) -> tuple[dict[str, Layer], list[Tensor]]:
    sizes = ATTENTIONS[name]
    layers = {
        slices: ours.UlyssesAttention(
            sizes.features,
            sizes.heads,
            sizes.key_heads,
            group=dist.group.WORLD,
            query_slices=slices,
            device=world.device,
            dtype=torch.bfloat16,
        )
        for slices in SLICES
    }
    for layer in layers.values():
        layer.qkv_weight, layer.out_weight = layers[1].qkv_weight, layers[1].out_weight
    return {
        "plain": lambda x: plain_attention(layers[1], x, lambda each: Exchange.apply(each, None, None)),
        "possible": lambda x: plain_attention(layers[1], x, exchange_nothing),
        **{"ours" if slices == 1 else f"ours_{slices}_slices": layer for slices, layer in layers.items()},
    }, [layers[1].qkv_weight, layers[1].out_weight]


# Experts


@dataclass(frozen=True)
class Experts:
    features: int
    hidden: int
    experts: int
    top_k: int


MIXTURES = {"mixtral-8x7b": Experts(4096, 14336, 8, 2), "qwen3-30b-a3b": Experts(2048, 768, 128, 8)}


class Permute(torch.autograd.Function):
    """x[order], where `order` has each row once."""

    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, gradient):
        (order,) = ctx.saved_tensors
        return torch.empty_like(gradient).index_copy_(0, order, gradient), None


def plain_experts(layer: ours.ExpertParallelMoE, x: Tensor, communicates: bool) -> Tensor:
    """As TorchTitan does it: rows sorted by expert, exchanged, sorted by expert again, grouped products, and back."""
    ranks, own = dist.get_world_size(), len(layer.down_weight)
    scores, chosen = layer.choose(x)
    numbers = chosen.flatten()
    order = numbers.argsort(stable=True)
    counts = numbers.bincount(minlength=layer.experts)
    arriving = torch.empty_like(counts)
    if communicates:
        dist.all_to_all_single(arriving, counts)
    else:
        arriving.copy_(counts)
    sent, received = torch.stack([counts, arriving]).view(2, ranks, own).sum(2).tolist()
    exchange = Exchange.apply if communicates else exchange_nothing
    rows = exchange(x.index_select(0, order // layer.top_k), sent, received)
    experts = torch.arange(own, device=x.device).repeat(ranks).repeat_interleave(arriving, output_size=len(rows))
    by_expert = experts.argsort(stable=True)
    ends = arriving.view(ranks, own).sum(0).cumsum(0).to(torch.int32)
    gate_up = F.grouped_mm(Permute.apply(rows, by_expert), layer.gate_up_weight.transpose(1, 2), offs=ends)
    made = F.grouped_mm(layer.activate(gate_up), layer.down_weight.transpose(1, 2), offs=ends)
    back = torch.empty_like(by_expert)
    back[by_expert] = torch.arange(len(back), device=x.device)
    results = exchange(Permute.apply(made, back), received, sent)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=x.device)
    of_tokens = Permute.apply(results, inverse).unflatten(0, chosen.shape)
    return weighted_sum(of_tokens, scores)  # the same for all, as it takes several times as long without products


def mixtures(name: str, world: World) -> tuple[dict[str, Layer], list[Tensor]]:
    sizes = MIXTURES[name]
    layer = ours.ExpertParallelMoE(
        sizes.features,
        sizes.hidden,
        sizes.experts,
        sizes.top_k,
        group=dist.group.WORLD,
        capacity_factor=1.5,
        device=world.device,
        dtype=torch.bfloat16,
    )
    dist.broadcast(layer.router.weight.data, 0)
    return {
        "plain": lambda x: plain_experts(layer, x, communicates=True),
        "possible": lambda x: plain_experts(layer, x, communicates=False),
        "ours": layer,
    }, list(layer.parameters())


# Measuring


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", nargs="+", choices=("attention", "experts"))
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 16384], help="of each rank")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--out", type=Path, help="JSON file to write the figures to")
    arguments = parser.parse_args()

    def program(world: World) -> bool:
        torch.manual_seed(arguments.seed + world.rank)
        rows: list[dict[str, object]] = []

        def measure_all(layer: str, name: str, tokens: int, x: Tensor, made, in_graphs: bool) -> None:
            for which, functions in passes(made[0], x, made[1]):
                row: dict[str, object] = {"layer": layer, "model": name, "tokens": tokens, "ranks": world.ranks}
                row |= {"pass": which} | measure(world, functions, arguments.rounds, in_graphs=in_graphs)
                rows.append(row)
                gains = {each[:-3]: row["plain_us"] / row[each] for each in row if each.endswith("_us")}
                shown = "  ".join(f"{each} {gain:.2f}x" for each, gain in gains.items() if each != "plain")
                world.print(f"{layer:9} {name:13} {tokens:6} {which:8} plain {row['plain_us']:9.1f} us  {shown}")
                write_results(world, arguments.out, rows)
            torch.cuda.empty_cache()

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, device=world.device, dtype=torch.bfloat16)

        for tokens in arguments.tokens:
            if "attention" in arguments.layer:
                for name, sizes in ATTENTIONS.items():
                    x = draw(tokens, 1, sizes.features)
                    measure_all("attention", name, tokens, x, attentions(name, world), in_graphs=True)
            if "experts" in arguments.layer:
                for name, mixture in MIXTURES.items():
                    x = draw(tokens, mixture.features)
                    measure_all("experts", name, tokens, x, mixtures(name, world), in_graphs=False)
        return True

    run(program)


if __name__ == "__main__":
    main()
