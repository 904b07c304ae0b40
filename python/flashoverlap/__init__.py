"""Overlaps communication with computation on several GPUs.

Five operations, each a GEMM per rank and the communication before or after it::

    out = flashoverlap.gemm_reduce_scatter(a, b, communicator)

`a` and `b` are matrices [rows, k] of NumPy (ranks on the host), PyTorch or CuPy (ranks on GPUs). How each is
computed and overlapped is found out by the tuner and kept, see docs/tuning.md. `Operator` gives control over it.
"""

from typing import TYPE_CHECKING, Any

from flashoverlap._core import (
    Candidate,
    CommunicationError,
    CudaError,
    Error,
    InvalidArgument,
    InvalidPlan,
    Machine,
    Plans,
    Problem,
    Schedule,
    Timeline,
    WaitExpired,
    search,
    simulate,
)
from flashoverlap.host import HostCommunicator, run_ranks
from flashoverlap.operations import (
    all_gather_gemm,
    all_to_all_gemm,
    gemm_all_reduce,
    gemm_all_to_all,
    gemm_reduce_scatter,
)
from flashoverlap.operators import Operator

if TYPE_CHECKING:
    from flashoverlap.gpu import Communicator as Communicator

__all__ = [  # without Communicator, which `import *` would load CUDA for
    "Candidate",
    "CommunicationError",
    "CudaError",
    "Error",
    "HostCommunicator",
    "InvalidArgument",
    "InvalidPlan",
    "Machine",
    "Operator",
    "Plans",
    "Problem",
    "Schedule",
    "Timeline",
    "WaitExpired",
    "all_gather_gemm",
    "all_to_all_gemm",
    "gemm_all_reduce",
    "gemm_all_to_all",
    "gemm_reduce_scatter",
    "run_ranks",
    "search",
    "simulate",
]


def __getattr__(name: str) -> Any:
    # Loads CUDA and NCCL, which ranks on the host do not need.
    if name == "Communicator":
        from flashoverlap.gpu import Communicator

        return Communicator
    raise AttributeError(f"module 'flashoverlap' has no attribute {name!r}")
