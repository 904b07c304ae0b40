"""What becomes of the other ranks when one fails: scripts/run_ranks.sh 2 -m pytest tests/python/gpu"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

if "LOCAL_RANK" not in os.environ:
    pytest.skip("needs one process per GPU, as torchrun starts them", allow_module_level=True)

import torch

RANKS = int(os.environ["WORLD_SIZE"])
STARTING = 60  # seconds that a process, its first steps and its end may take


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.mark.skipif(RANKS == 1, reason="needs several ranks")
@pytest.mark.skipif(os.environ["RANK"] != "0", reason="rank 0 starts a world of its own")
def test_a_rank_that_raises_in_mid_step_ends_the_others():
    program = Path(__file__).with_name("raising_rank.py")
    port = str(free_port())
    outputs = [tempfile.TemporaryFile("w+") for _ in range(RANKS)]
    processes = []
    for rank, output in enumerate(outputs):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank % torch.cuda.device_count()), "MASTER_PORT": port}
        processes.append(subprocess.Popen([sys.executable, program], env=os.environ | place, stderr=output))
    try:
        deadline = time.monotonic() + STARTING
        codes = [process.wait(max(deadline - time.monotonic(), 0)) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, output in enumerate(outputs):
        output.seek(0)
        error = output.read()
        print(f"rank {rank}:\n{error}")
        assert codes[rank] == 1
        if rank == RANKS - 1:
            assert "RuntimeError: in the middle of a step" in error
        else:
            assert "CommunicationError" in error or "WaitExpired" in error
