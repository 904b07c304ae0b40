"""PyTorch on GPUs, one process per rank: scripts/run_ranks.sh 2 -m pytest tests/python/gpu

Every rank runs the same tests in the same order, against plain products of what all ranks have gathered.
"""

import os
import time

import pytest


@pytest.fixture(scope="session")
def group():
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    yield dist.group.WORLD
    dist.barrier()


@pytest.fixture
def seed(group):
    """The same on all ranks, new for every run."""
    import torch
    import torch.distributed as dist

    drawn = torch.tensor([int(os.environ.get("FLASHOVERLAP_SEED", time.time_ns() % 2**31))], device="cuda")
    dist.broadcast(drawn, 0)
    print(f"FLASHOVERLAP_SEED={drawn.item()}")
    torch.manual_seed(drawn.item() + dist.get_rank())
