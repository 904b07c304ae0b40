"""Trains a small language model twice, with the same weights and data, and compares the losses: divided among ranks
(tensor and sequence parallelism by flashoverlap.torch), and whole, in plain PyTorch on rank 0.

    python examples/python/train.py --ranks 2 --plot docs/training-loss.svg   # ranks of the host
    torchrun --nproc-per-node 2 examples/python/train.py                      # GPUs, in bf16

Each token of a sequence is the sum of the two before it, modulo `TOKENS`: attention has to find them, and feed-forward
to add. Only the second token cannot be known, so that the mean loss does not fall below log(TOKENS) / SEQUENCE = 0.11.
"""

import argparse
import copy
import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import flashoverlap
import flashoverlap.torch as parallel
from picture import Curve, Picture

TOKENS = 32
SEQUENCE, BATCH = 32, 16
FEATURES, HIDDEN, HEADS, BLOCKS = 64, 128, 4, 2
SEED = 1


# The model. It knows nothing of ranks: x is [sequence, batch, features], of which a rank has its rows of the sequence
# and, between the two linear layers of attention and of feed-forward, its heads or hidden features of all rows.


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Query, key and value of one head after those of another, so that parts of the weight are whole heads.
        self.projection = nn.Linear(FEATURES, 3 * FEATURES, bias=False)
        self.output = nn.Linear(FEATURES, FEATURES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.projection(x).unflatten(-1, (-1, 3, FEATURES // HEADS))
        query, key, value = (each.permute(1, 2, 0, 3) for each in projected.unbind(-2))
        mixed = F.scaled_dot_product_attention(rotate(query), rotate(key), value, is_causal=True)
        return self.output(mixed.permute(2, 0, 1, 3).flatten(-2))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions of x[batch, heads, sequence, features of a head]."""
    half = x.shape[-1] // 2
    frequencies = 100.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # A feature's gate and up projection are neighbours, for the same reason.
        self.gate_up = nn.Linear(FEATURES, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, FEATURES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(FEATURES) for _ in range(2))
        self.attention = Attention()
        self.feed_forward = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.RMSNorm(FEATURES)
        self.head = nn.Linear(FEATURES, TOKENS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores [sequence, batch, TOKENS] of the tokens that follow."""
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


# What knows of ranks


def divide(model: Model, group: parallel.Group) -> None:
    parallel.parallelize(
        model, group, {"*.projection": "column", "*.output": "row", "*.gate_up": "column", "*.down": "row"}
    )


def shared_parameters(model: Model) -> list[nn.Parameter]:
    """Those that every rank has: embedding, norms and head. Each rank computes their gradients of its own rows."""
    divided = (parallel.ColumnParallelLinear, parallel.RowParallelLinear)
    layers = [each for each in model.modules() if not isinstance(each, divided)]
    return [parameter for each in layers for parameter in each.parameters(recurse=False)]


def sum_over_ranks(tensor: Tensor, group: parallel.Group) -> Tensor:
    if isinstance(group, flashoverlap.HostCommunicator):
        return torch.stack(group.gather(tensor)).sum(0)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def add_up_gradients(parameters: list[nn.Parameter], group: parallel.Group) -> None:
    """Replaces the gradients by their sums over the ranks, in one go."""
    total = sum_over_ranks(torch.cat([each.grad.flatten() for each in parameters]), group)
    for each, gradient in zip(parameters, total.split([each.numel() for each in parameters])):
        each.grad.copy_(gradient.view_as(each))


# Training


def batches(steps: int) -> Iterator[Tensor]:
    """Tokens [SEQUENCE + 1, BATCH], the same on all ranks: threads share PyTorch's own generator."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(steps):
        sequence = list(torch.randint(TOKENS, (2, BATCH), generator=generator))
        while len(sequence) <= SEQUENCE:
            sequence.append((sequence[-1] + sequence[-2]) % TOKENS)
        yield torch.stack(sequence)


def train(model: Model, steps: int, group: parallel.Group | None) -> Iterator[float]:
    """Yields the loss of each step. group: has parts of the model and of each sequence; None: the model is whole."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, steps)
    device = model.head.weight.device
    # Operations on GPUs take no fp32: there the model computes in bf16 with copies of the weights, which are fp32.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    ranks, rank = (1, 0) if group is None else (parallel.communicator(group).ranks, parallel.communicator(group).rank)
    for batch in batches(steps):
        tokens, following = (each.to(device).chunk(ranks)[rank] for each in (batch[:-1], batch[1:]))
        weights = {name: weight.to(dtype) for name, weight in model.named_parameters()}
        scores = torch.func.functional_call(model, weights, tokens)
        # This rank's part of the mean over all tokens.
        loss = F.cross_entropy(scores.float().flatten(0, 1), following.flatten(), reduction="sum") / (SEQUENCE * BATCH)
        optimizer.zero_grad()
        loss.backward()
        loss = loss.detach()
        if group is not None:
            add_up_gradients(shared_parameters(model), group)
            loss = sum_over_ranks(loss, group)
        optimizer.step()
        falling.step()
        yield loss.item()


def compare(initial: Model, group: parallel.Group, steps: int) -> list[tuple[float, float]]:
    """Trains the divided model and, on rank 0, the whole one in turns with it. Returns both losses per step there."""
    model = copy.deepcopy(initial)
    divide(model, group)
    losses: list[tuple[float, float]] = []
    divided_losses = train(model, steps, group)
    if parallel.communicator(group).rank != 0:
        for _ in divided_losses:
            pass
        return []
    print(" step  divided    whole")
    for divided, whole in zip(divided_losses, train(copy.deepcopy(initial), steps, None)):
        losses.append((divided, whole))
        if len(losses) % 25 == 0 or len(losses) == steps:
            print(f"{len(losses):5}{divided:9.4f}{whole:9.4f}", flush=True)
    return losses


def report(losses: list[tuple[float, float]], ranks: int, path: Path | None) -> None:
    difference = max(abs(divided - whole) for divided, whole in losses)
    print(f"largest difference: {difference:.1e}")
    if path is not None:
        divided, whole = (list(enumerate(each, 1)) for each in zip(*losses))
        Picture(
            f"Training loss; the largest difference is {difference:.1e}",
            "step",
            "loss",
            [
                Curve("plain PyTorch, one process", "#f0a030", whole, width=5),
                Curve(f"flashoverlap.torch, {ranks} ranks", "#1f77d0", divided),
            ],
        ).write(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2, 4), help="of the host; on GPUs torchrun's")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draws both losses")
    options = parser.parse_args()

    torch.manual_seed(SEED)
    initial = Model()
    if "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        group = dist.group.WORLD
        losses = compare(initial.to(device), group, options.steps)
        if losses:
            report(losses, dist.get_world_size(), options.plot)
        dist.barrier()
        dist.destroy_process_group()
    else:
        losses = flashoverlap.run_ranks(options.ranks, lambda group: compare(initial, group, options.steps))[0]
        report(losses, options.ranks, options.plot)


if __name__ == "__main__":
    main()
