"""Host time of a call from Python, in µs: what each way of calling adds to the operator itself.

    scripts/run_ranks.sh 2 bench/python_calls.py
"""

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import flashoverlap
import flashoverlap.torch as parallel
from flashoverlap.operations import operator_for

M, N, K = 64, 4096, 2048
CALLS = 20  # before the GPU is awaited, so that launches do not wait for it


def microseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
    return sorted(times)[len(times) // 2]


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    group = dist.group.WORLD
    communicator, name = parallel.communicator(group), parallel.groups.name_of(group)
    a, b = (torch.randn(rows, K, device="cuda", dtype=torch.bfloat16) for rows in (M, N))
    out = flashoverlap.gemm_all_reduce(a, b, communicator)
    operator = operator_for("gemm_all_reduce", a, b, communicator)
    trained = b.clone().requires_grad_()
    ways = {
        "the operator's run, bound": lambda: operator._bound.run(a, b, out),
        "Operator.run": lambda: operator.run(a, b, out),
        "gemm_all_reduce, with out": lambda: flashoverlap.gemm_all_reduce(a, b, communicator, out),
        "gemm_all_reduce": lambda: flashoverlap.gemm_all_reduce(a, b, communicator),
        "torch: matmul_all_reduce": lambda: parallel.matmul_all_reduce(a, b, communicator),
        "torch: with gradients": lambda: parallel.matmul_all_reduce(a, trained, communicator),
        "torch.ops": lambda: torch.ops.flashoverlap.matmul_all_reduce(a, b, name),
        "torch.ops, with gradients": lambda: torch.ops.flashoverlap.matmul_all_reduce(a, trained, name),
        "torch.mm": lambda: torch.mm(a, b.t()),
        "torch.mm, with gradients": lambda: torch.mm(a, trained.t()),
    }
    for way, call in ways.items():
        taken = microseconds(call)
        if dist.get_rank() == 0:
            print(f"{way:28} {taken:6.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
