"""The activation between the projections of a gated feed-forward, in one pass on GPUs."""

from typing import Any

import torch
import torch.nn.functional
from torch import Tensor
from torch.autograd import forward_ad

from flashoverlap.torch.once import differentiable_once
from flashoverlap.torch.operations import _concerns_only_autograd


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) ⊙ up of gate_up[..., 2·features], which has the gate's features first.

    Dense matrices of bf16 and fp16 on GPUs take one kernel forward and one backward, which keep nothing but gate_up,
    compute in fp32 and round once; they have first derivatives only. All others, and what `torch.compile`, a mode or
    a transformation sees, take PyTorch's operations. Raises ValueError for an odd number of features.
    """
    if gate_up.dim() == 0 or gate_up.shape[-1] % 2 != 0:
        raise ValueError(f"shape of gate_up = {list(gate_up.shape)}: must have an even last dimension")
    if not _takes_one_kernel(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up
    if torch.is_grad_enabled() and gate_up.requires_grad:
        hidden: Tensor = _SwiGLU.apply(gate_up)
        return hidden
    return _compute(gate_up)


def _takes_one_kernel(gate_up: Tensor) -> bool:
    return (
        _concerns_only_autograd(gate_up, gate_up)
        and forward_ad._current_level < 0
        and gate_up.is_cuda
        and gate_up.dtype in (torch.bfloat16, torch.float16)
        and gate_up.is_contiguous()
        and gate_up.numel() > 0
    )


def _rows(tensor: Tensor) -> Tensor:
    matrix = tensor.detach()
    return matrix if matrix.dim() == 2 else matrix.view(-1, matrix.shape[-1])


def _compute(gate_up: Tensor) -> Tensor:
    from flashoverlap import gpu

    hidden = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
    gpu.swiglu(_rows(gate_up), _rows(hidden))
    return hidden


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return _compute(gate_up)

    @staticmethod
    @differentiable_once(lambda ctx: True)
    def backward(ctx: Any, of_hidden: Tensor) -> tuple[Tensor]:
        from flashoverlap import gpu

        (gate_up,) = ctx.saved_tensors
        of_gate_up = torch.empty_like(gate_up)
        gpu.swiglu_gradient(_rows(of_hidden.contiguous()), _rows(gate_up), _rows(of_gate_up))
        return (of_gate_up,)
