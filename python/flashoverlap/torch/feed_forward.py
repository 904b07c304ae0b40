"""The feed-forward part of a block: silu(x · Wgᵀ) ⊙ (x · Wuᵀ), then · Wdᵀ."""

import torch
import torch.nn.functional
from torch import Tensor, nn

from flashoverlap.torch.groups import Group
from flashoverlap.torch.linear import ColumnParallelLinear, RowParallelLinear


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
        self.gate_up = ColumnParallelLinear(
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

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        out: Tensor = self.down(torch.nn.functional.silu(gate) * up)
        return out
