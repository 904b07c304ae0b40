"""Training steps, in the middle of one of which the last rank raises. failure_test.py starts it on every rank."""

import os

import torch
import torch.distributed as dist

import flashoverlap.torch as parallel
from flashoverlap.gpu import Communicator

WAIT_LIMIT = 5  # seconds
FEATURES, HIDDEN, ROWS = 512, 1024, 256

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("gloo")  # by which ranks find each other, and no more
group = Communicator.from_process_group(wait_limit=WAIT_LIMIT)
layer = parallel.GatedFeedForward(FEATURES, HIDDEN, group=group, device="cuda", dtype=torch.bfloat16)
x = torch.randn(ROWS // group.ranks, FEATURES, device="cuda", dtype=torch.bfloat16)
for step in range(10_000):
    hidden = layer.hidden(x)
    if step == 3 and group.rank == group.ranks - 1:
        raise RuntimeError("in the middle of a step")
    layer.down(hidden).sum().backward()
