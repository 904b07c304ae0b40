"""Trains a small mixture of experts twice, with the same weights and data, and compares the losses: its experts on
several ranks (flashoverlap.torch), and all on one, in plain PyTorch on rank 0.

    python examples/python/experts.py --ranks 2                        # ranks of the host
    torchrun --nproc-per-node 2 examples/python/experts.py             # GPUs, in bf16

Every rank has samples of its own, another number of them in every step, and a router chooses for each the experts that
it is sent to. The model learns what another one, which is drawn at random, makes of them.
"""

import argparse
import copy
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import flashoverlap
import flashoverlap.torch as parallel

SAMPLES = 64  # of a rank, at most
FEATURES, HIDDEN, EXPERTS, TOP_K = 32, 64, 8, 2
SEED = 1


class Mixture(nn.Module):
    """All experts, in plain PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(FEATURES, EXPERTS, bias=False)
        self.gate_up_weight = nn.Parameter(torch.randn(EXPERTS, 2 * HIDDEN, FEATURES) / FEATURES**0.5)
        self.down_weight = nn.Parameter(torch.randn(EXPERTS, FEATURES, HIDDEN) / HIDDEN**0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits, chosen = self.router(x).topk(TOP_K)
        scores = logits.softmax(-1, dtype=torch.float32)
        out = torch.zeros_like(x, dtype=torch.float32)
        for expert in range(EXPERTS):
            sample, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = (x[sample] @ self.gate_up_weight[expert].t()).chunk(2, -1)
            result = (F.silu(gate) * up) @ self.down_weight[expert].t()
            out = out.index_add(0, sample, result * scores[sample, place, None])
        return out.to(x.dtype)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(FEATURES, FEATURES)
        self.mixture: nn.Module = Mixture()
        self.out = nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        return self.out(x + self.mixture(x))


# What knows of ranks


def divide(model: Model, group: parallel.Group) -> None:
    """Leaves each rank its part of the experts."""
    communicator, whole = parallel.communicator(group), model.mixture
    model.mixture = parallel.ExpertParallelMoE(
        FEATURES, HIDDEN, EXPERTS, TOP_K, group=group, max_tokens=SAMPLES, device=model.out.weight.device
    )
    with torch.no_grad():
        model.mixture.router.load_state_dict(whole.router.state_dict())
        for name in ("gate_up_weight", "down_weight"):
            part = getattr(whole, name).chunk(communicator.ranks)[communicator.rank]
            getattr(model.mixture, name).copy_(part)


def sum_over_ranks(tensor: Tensor, group: parallel.Group) -> Tensor:
    if isinstance(group, flashoverlap.HostCommunicator):
        return torch.stack(group.gather(tensor)).sum(0)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def add_up_gradients(model: Model, group: parallel.Group) -> None:
    """Of what every rank has, in one go: all but the experts, whose gradients are complete."""
    experts = ("mixture.gate_up_weight", "mixture.down_weight")
    gradients = [parameter.grad for name, parameter in model.named_parameters() if name not in experts]
    total = sum_over_ranks(torch.cat([each.flatten() for each in gradients]), group)
    for each, added_up in zip(gradients, total.split([each.numel() for each in gradients])):
        each.copy_(added_up.view_as(each))


# Training


def batches(steps: int, ranks: int) -> Iterator[list[Tensor]]:
    """Each rank's samples, the same lists on all of them: threads share PyTorch's own generator."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(steps):
        counts = torch.randint(1, SAMPLES + 1, (ranks,), generator=generator).tolist()
        yield [torch.randn(count, FEATURES, generator=generator) for count in counts]


def train(model: Model, target: Model, steps: int, ranks: int, group: parallel.Group | None) -> Iterator[float]:
    """Yields the loss of each step. group: has parts of the model and of each batch; None: the model is whole."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    device = model.out.weight.device
    # Operations on GPUs take no fp32: there the model computes in bf16 with copies of the weights, which are fp32.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for batch in batches(steps, ranks):
        samples = sum(len(each) for each in batch)
        own = torch.cat(batch) if group is None else batch[parallel.communicator(group).rank]
        with torch.no_grad():
            wanted = target(own).to(device)
        weights = {name: weight.to(dtype) for name, weight in model.named_parameters()}
        out = torch.func.functional_call(model, weights, own.to(device, dtype))
        loss = F.mse_loss(out.float(), wanted, reduction="sum") / (samples * FEATURES)
        optimizer.zero_grad()
        loss.backward()
        loss = loss.detach()
        if group is not None:
            add_up_gradients(model, group)
            loss = sum_over_ranks(loss, group)
        optimizer.step()
        yield loss.item()


def compare(initial: Model, target: Model, group: parallel.Group, steps: int) -> None:
    """Trains the divided model and, on rank 0, the whole one in turns with it."""
    communicator = parallel.communicator(group)
    model = copy.deepcopy(initial)
    divide(model, group)
    divided_losses = train(model, target, steps, communicator.ranks, group)
    if communicator.rank != 0:
        for _ in divided_losses:
            pass
        return
    largest = 0.0
    print(" step  divided    whole")
    whole_losses = train(copy.deepcopy(initial), target, steps, communicator.ranks, None)
    for step, (divided, whole) in enumerate(zip(divided_losses, whole_losses), 1):
        largest = max(largest, abs(divided - whole))
        if step % 10 == 0 or step == steps:
            print(f"{step:5}{divided:9.4f}{whole:9.4f}", flush=True)
    print(f"largest difference: {largest:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2, 4, 8), help="of the host; on GPUs torchrun's")
    options = parser.parse_args()

    torch.manual_seed(SEED)
    initial, target = Model(), Model()
    if "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        compare(initial.to(device), target, dist.group.WORLD, options.steps)
        dist.barrier()
        dist.destroy_process_group()
    else:
        flashoverlap.run_ranks(options.ranks, lambda group: compare(initial, target, group, options.steps))


if __name__ == "__main__":
    main()
