"""FlashOverlap in PyTorch: operations with gradients, layers, and models that are made of them.

A *group* is everywhere a communicator of FlashOverlap or a process group of `torch.distributed`. Operations and
layers work under `torch.compile(fullgraph=True)` and in CUDA graphs. `flashoverlap.torch.symm_mem` has the
operations with PyTorch's own schema for fused matrix products.
"""

import flashoverlap.torch.flops  # noqa: F401  # counted from now on
import flashoverlap.torch.symm_mem  # noqa: F401  # known to PyTorch from now on
from flashoverlap.torch.activation import swiglu
from flashoverlap.torch.experts import ExpertParallelMoE, ExpertRoutes, dispatch_matmul, matmul_combine
from flashoverlap.torch.feed_forward import GatedFeedForward, NormedFeedForward
from flashoverlap.torch.groups import Group, communicator
from flashoverlap.torch.linear import ColumnParallelLinear, RowParallelLinear
from flashoverlap.torch.norm import (
    OverlapRowParallelLayer,
    ReorderedResult,
    ReorderRMSNorm,
    matmul_all_reduce_rms_norm,
    matmul_reduce_scatter_rms_norm,
)
from flashoverlap.torch.operations import (
    all_gather_matmul,
    all_to_all_matmul,
    copy_matmul,
    matmul_all_reduce,
    matmul_all_to_all,
    matmul_reduce_scatter,
    sharded_weight_matmul,
)
from flashoverlap.torch.parallelize import parallelize
from flashoverlap.torch.rewrite import OverlapPass
from flashoverlap.torch.ulysses import UlyssesAttention

__all__ = [
    "ColumnParallelLinear",
    "ExpertParallelMoE",
    "ExpertRoutes",
    "GatedFeedForward",
    "Group",
    "NormedFeedForward",
    "OverlapPass",
    "OverlapRowParallelLayer",
    "ReorderRMSNorm",
    "ReorderedResult",
    "RowParallelLinear",
    "UlyssesAttention",
    "all_gather_matmul",
    "all_to_all_matmul",
    "communicator",
    "copy_matmul",
    "dispatch_matmul",
    "matmul_all_reduce",
    "matmul_all_reduce_rms_norm",
    "matmul_all_to_all",
    "matmul_combine",
    "matmul_reduce_scatter",
    "matmul_reduce_scatter_rms_norm",
    "parallelize",
    "sharded_weight_matmul",
    "swiglu",
]
