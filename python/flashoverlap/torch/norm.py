"""RMSNorm of what a row-parallel product leaves: residual, norm and the order of the result in one pass over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional
from torch import Tensor, nn

from flashoverlap._core import InvalidArgument
from flashoverlap.operations import operator_for_rows
from flashoverlap.torch.groups import Group, name_of, named
from flashoverlap.torch.linear import RowParallelLinear
from flashoverlap.torch.once import differentiable_once
from flashoverlap.torch.operations import (
    Gradients,
    _concerns_only_autograd,
    _operations,
    autocast,
    gradients_of,
    is_autocast,
    keep_communicator,
    library,
    matmul_all_reduce,
    matmul_reduce_scatter,
    refusals,
    renamed,
    require_no_tangents,
)
from flashoverlap.torch.parts import MarkedModule, mark

_computations: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {}
"""What operations do, by name."""


def matmul_all_reduce_rms_norm(
    x: Tensor,
    weight: Tensor,
    norm_weight: Tensor,
    group: Group | str,
    residual: Tensor | None = None,
    *,
    epsilon: float = 1e-6,
    weight_is_constant: bool = False,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of sum = `matmul_all_reduce(x, weight, group)` + residual, and sum: both [m, n].

    norm_weight: [n]; residual: [m, n]; both of x's data type, and the same on all ranks. The product stays in the order
    in which it was communicated until it is normalised. weight_is_constant: see `flashoverlap.torch.operations`.
    """
    operands = x, weight, norm_weight, residual
    return _run("matmul_all_reduce_rms_norm", *operands, epsilon, group, weight_is_constant)


def matmul_reduce_scatter_rms_norm(
    x: Tensor,
    weight: Tensor,
    norm_weight: Tensor,
    group: Group | str,
    residual: Tensor | None = None,
    *,
    epsilon: float = 1e-6,
    weight_is_constant: bool = False,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of sum = `matmul_reduce_scatter(x, weight, group)` + residual, and sum: both [m/ranks, n].

    norm_weight: [n]; residual: [m/ranks, n]; both of x's data type. Each rank computes the gradient of norm_weight of
    its own rows: whoever updates it adds these up over the group. weight_is_constant: see
    `flashoverlap.torch.operations`.
    """
    operands = x, weight, norm_weight, residual
    return _run("matmul_reduce_scatter_rms_norm", *operands, epsilon, group, weight_is_constant)


def _run(
    name: str,
    x: Tensor,
    weight: Tensor,
    norm_weight: Tensor,
    residual: Tensor | None,
    epsilon: float,
    group: Group | str,
    weight_is_constant: bool,
) -> tuple[Tensor, Tensor]:
    require_no_tangents(x, weight, norm_weight, residual)
    x, cast_weight = autocast(x, weight)
    if is_autocast(x):
        norm_weight, residual = norm_weight.to(x.dtype), None if residual is None else residual.to(x.dtype)
    residual = None if residual is None else residual.contiguous()
    operands = x, cast_weight, norm_weight.contiguous(), residual
    if weight_is_constant and cast_weight is weight and not _must_be_seen(*operands):
        return _computations[name](*operands, epsilon, name_of(group), weight_is_constant=True)
    result: tuple[Tensor, Tensor] = getattr(_operations, name)(*operands, epsilon, name_of(group))
    return result


def _require_operands_of_norm(
    x: Tensor, norm_weight: Tensor, residual: Tensor | None, shape: tuple[int, int]
) -> None:
    """Raises InvalidArgument for what the library knows under other names. shape: of the result."""
    for name, given, expected in (("norm_weight", norm_weight, shape[1:]), ("residual", residual, shape)):
        if given is None:
            continue
        if given.shape != expected:
            raise InvalidArgument(f"shape of {name} = {list(given.shape)}: must be {list(expected)}")
        for what, own, of_x in (("data type", given.dtype, x.dtype), ("device", given.device, x.device)):
            if own != of_x:
                raise InvalidArgument(f"{what} of {name} = {own}: must be {of_x}, as of x")


def _must_be_seen(x: Tensor, weight: Tensor, norm_weight: Tensor, residual: Tensor | None) -> bool:
    """Whether PyTorch must see the call: for gradients, or for whoever has put itself in between."""
    given = [each for each in (x, weight, norm_weight, residual) if each is not None]
    if torch.is_grad_enabled() and any(each.requires_grad for each in given):
        return True
    return not (_concerns_only_autograd(x, weight) and _concerns_only_autograd(norm_weight, given[-1]))


def _gradients_of_norm(
    of_normalized: Tensor | None, of_sum: Tensor | None, sum: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor | None, Tensor | None]:
    """Of sum, and of the norm's weight."""
    if of_normalized is None:
        return of_sum, None
    if _takes_one_kernel(of_normalized, of_sum, sum, weight):
        return _gradients_in_one_kernel(of_normalized, of_sum, sum, weight, epsilon)
    with torch.enable_grad():  # of PyTorch's norm of the same sum, which GPUs differentiate in one kernel
        leaves = sum.detach().requires_grad_(), weight.detach().requires_grad_()
        normalized = torch.nn.functional.rms_norm(leaves[0], weight.shape, leaves[1], epsilon)
    gradient, of_weight = torch.autograd.grad(normalized, leaves, of_normalized)
    return gradient if of_sum is None else gradient + of_sum, of_weight


def _takes_one_kernel(of_normalized: Tensor, of_sum: Tensor | None, sum: Tensor, weight: Tensor) -> bool:
    if not (_concerns_only_autograd(sum, weight) and sum.is_cuda):
        return False
    from flashoverlap import gpu

    given = [each for each in (of_normalized, of_sum, sum, weight) if each is not None]
    return (
        sum.dtype in (torch.bfloat16, torch.float16)
        and sum.shape[-1] % 8 == 0
        and sum.shape[-1] <= gpu.most_norm_gradient_cols
        and all(each.dtype == sum.dtype and each.is_contiguous() and each.data_ptr() % 16 == 0 for each in given)
    )


def _gradients_in_one_kernel(
    of_normalized: Tensor, of_sum: Tensor | None, sum: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    from flashoverlap import gpu

    of_x, of_weight = torch.empty_like(sum), torch.empty_like(weight)
    partials = sum.new_empty(gpu.norm_gradient_partials(sum), sum.shape[-1], dtype=torch.float32)
    gpu.rms_norm_gradient(sum, weight[None], epsilon, of_normalized, of_sum, of_x, of_weight[None], partials)
    return of_x, of_weight


def _define(name: str, gemm: str, gradients: Gradients) -> None:
    """gradients: of the product."""
    scatters = gemm == "gemm_reduce_scatter"

    def compute(
        x: Tensor,
        weight: Tensor,
        norm_weight: Tensor,
        residual: Tensor | None,
        epsilon: float,
        group: str,
        *,
        weight_is_constant: bool = False,
    ) -> tuple[Tensor, Tensor]:
        try:
            operator = operator_for_rows(
                gemm, x, weight, named(group), is_read_later=True, b_is_constant=weight_is_constant
            )
            result = operator.run(x, weight)
        except refusals as refusal:
            raise renamed(refusal, gemm, x, weight, named(group)) from None
        try:
            return operator.rms_norm(result, norm_weight, residual, epsilon=epsilon)
        except refusals:
            rows = len(x) // (named(group).ranks if scatters else 1)
            _require_operands_of_norm(x, norm_weight, residual, (rows, len(weight)))
            raise

    def fake(
        x: Tensor, weight: Tensor, norm_weight: Tensor, residual: Tensor | None, epsilon: float, group: str
    ) -> tuple[Tensor, Tensor]:
        shape = (x.shape[0] // (named(group).ranks if scatters else 1), weight.shape[0])
        return x.new_empty(shape), x.new_empty(shape)

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, norm_weight, _, ctx.epsilon, ctx.group = inputs
        keep_communicator(ctx, output[0])
        ctx.set_materialize_grads(False)
        operands = gradients.operands(x, weight, *ctx.needs_input_grad[:2])
        ctx.save_for_backward(*operands, norm_weight, output[1])

    @differentiable_once(lambda ctx: any(ctx.needs_input_grad))
    def backward(ctx: Any, of_normalized: Tensor | None, of_sum: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, norm_weight, sum = ctx.saved_tensors
        gradient, of_norm_weight = _gradients_of_norm(of_normalized, of_sum, sum, norm_weight, ctx.epsilon)
        of_x, of_weight = None, None
        if gradient is not None:
            of_x, of_weight = gradients.compute(gradient, x, weight, ctx.group, *ctx.needs_input_grad[:2])
        return of_x, of_weight, of_norm_weight, gradient if ctx.needs_input_grad[3] else None, None, None

    _computations[name] = compute
    library.define(
        f"{name}(Tensor x, Tensor weight, Tensor norm_weight, Tensor? residual, float epsilon, str group)"
        " -> (Tensor, Tensor)"
    )
    for device in ("CPU", "CUDA"):
        library.impl(name, compute, device)
    torch.library.register_fake(f"flashoverlap::{name}", fake, lib=library)
    torch.library.register_autograd(f"flashoverlap::{name}", backward, setup_context=save, lib=library)


_define("matmul_all_reduce_rms_norm", "gemm_all_reduce", gradients_of["matmul_all_reduce"])
_define("matmul_reduce_scatter_rms_norm", "gemm_reduce_scatter", gradients_of["matmul_reduce_scatter"])


@dataclass(frozen=True)
class ReorderedResult:
    """What a row-parallel layer makes of x. It is computed by whoever reads it, once for each time it is read."""

    layer: RowParallelLinear
    x: Tensor

    def natural(self) -> Tensor:
        """As an ordinary tensor: what the layer itself returns, without bias."""
        multiply = matmul_reduce_scatter if self.layer.sequence_parallel else matmul_all_reduce
        return self._shaped(multiply(self._rows, self.layer.weight, self.layer.group_name))

    def rms_norm(
        self, weight: Tensor, residual: Tensor | None = None, *, epsilon: float = 1e-6
    ) -> tuple[Tensor, Tensor]:
        """RMSNorm of sum = result + residual, and sum. Raises ValueError for a residual of another shape."""
        rows = self._rows
        of_first = self.x.shape[0] // (self.layer.group.ranks if self.layer.sequence_parallel else 1)
        shape = [of_first, *self.x.shape[1:-1], self.layer.weight.shape[0]]
        if residual is not None and list(residual.shape) != shape:
            raise ValueError(f"shape of residual = {list(residual.shape)}: must be {shape}, as of the result")
        multiply = (
            matmul_reduce_scatter_rms_norm if self.layer.sequence_parallel else matmul_all_reduce_rms_norm
        )
        added = None if residual is None else residual.reshape(-1, residual.shape[-1])
        normalized, sum = multiply(
            rows, self.layer.weight, weight, self.layer.group_name, added, epsilon=epsilon
        )
        return self._shaped(normalized), self._shaped(sum)

    @property
    def _rows(self) -> Tensor:
        self.layer.require_rows(self.x)
        return self.x.reshape(-1, self.x.shape[-1]).contiguous()

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.view(-1, *self.x.shape[1:-1], rows.shape[-1])


class OverlapRowParallelLayer(RowParallelLinear):
    """A row-parallel linear layer without bias, whose result is left to `ReorderRMSNorm`.

    comm_op: "all_reduce", or "reduce_scatter" for sequence parallelism, which leaves each rank its part of the first
    dimension.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        group: Group,
        comm_op: str = "all_reduce",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if comm_op not in ("all_reduce", "reduce_scatter"):
            raise ValueError(f'comm_op = "{comm_op}": must be "all_reduce" or "reduce_scatter"')
        super().__init__(
            in_features,
            out_features,
            group=group,
            bias=False,
            sequence_parallel=comm_op == "reduce_scatter",
            device=device,
            dtype=dtype,
        )

    def forward(self, x: Tensor) -> ReorderedResult:  # type: ignore[override]
        self.require_rows(x)
        return ReorderedResult(self, x)


class ReorderRMSNorm(MarkedModule):
    """RMSNorm that undoes the order of a result while it normalises it, and adds the residual in the same pass.

    sequence_parallel: set on `weight`, as Megatron expects where each rank computes its gradient of its own rows.
    """

    def __init__(
        self,
        features: int,
        epsilon: float = 1e-6,
        *,
        sequence_parallel: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.sequence_parallel = sequence_parallel
        self.weight = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self._mark()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def _mark(self) -> None:
        mark(self._parameters.get("weight"), sequence_parallel=self.sequence_parallel)

    def forward(self, result: ReorderedResult, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """The norm of result + residual, and the sum, which is the next residual. Without a residual the norm alone."""
        normalized, sum = result.rms_norm(self.weight, residual, epsilon=self.epsilon)
        return normalized if residual is None else (normalized, sum)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, epsilon={self.epsilon}"
