"""The feed-forward part of a block: silu(x · Wgᵀ) ⊙ (x · Wuᵀ), then · Wdᵀ."""

import torch
from torch import Tensor, nn

from flashoverlap.torch.activation import swiglu
from flashoverlap.torch.groups import Group
from flashoverlap.torch.linear import ColumnParallelLinear, RowParallelLinear
from flashoverlap.torch.norm import ReorderedResult, ReorderRMSNorm


class _GateAndUp(ColumnParallelLinear):
    _blocks = 2

    def _divided_size(self, features: int) -> str:
        return f"hidden_features = {features // self._blocks}"


class GatedFeedForward(nn.Module):
    """As in Llama. Gate and up projection are one product: each rank's rows of `gate_up.weight` are its part of Wg,
    then its part of Wu."""

    def __init__(
        self,
        features: int,
        hidden_features: int,
        *,
        group: Group,
        sequence_parallel: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gate_up = _GateAndUp(
            features,
            2 * hidden_features,
            group=group,
            bias=False,
            sequence_parallel=sequence_parallel,
            device=device,
            dtype=dtype,
        )
        self.down = RowParallelLinear(
            hidden_features,
            features,
            group=group,
            bias=False,
            sequence_parallel=sequence_parallel,
            device=device,
            dtype=dtype,
        )

    def hidden(self, x: Tensor) -> Tensor:
        """This rank's part of the features between the projections."""
        return swiglu(self.gate_up(x))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.hidden(x))
        return out


class NormedFeedForward(GatedFeedForward):
    """With what follows it in a block: the residual is added and the next RMSNorm computed in one pass over the down
    projection's result."""

    def __init__(
        self,
        features: int,
        hidden_features: int,
        *,
        group: Group,
        epsilon: float = 1e-6,
        sequence_parallel: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            features, hidden_features, group=group, sequence_parallel=sequence_parallel, device=device, dtype=dtype
        )
        self.norm = ReorderRMSNorm(
            features, epsilon, sequence_parallel=sequence_parallel, device=device, dtype=dtype
        )

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """x: normalised. Returns the next layer's x, and its residual."""
        normalized, sum = self.norm(ReorderedResult(self.down, self.hidden(x)), residual)
        return normalized, sum
