"""Linear layers whose weight is divided among the ranks of a group (tensor parallelism)."""

import torch
from torch import Tensor, nn

from flashoverlap.torch.groups import Group, communicator, name_of
from flashoverlap.torch.operations import (
    all_gather_matmul,
    copy_matmul,
    matmul_all_reduce,
    matmul_reduce_scatter,
)


def _part(size: int, name: str, ranks: int) -> int:
    if size % ranks != 0:
        raise ValueError(f"{name} = {size}: must be a multiple of the {ranks} ranks")
    return size // ranks


class _ParallelLinear(nn.Module):
    """in_features and out_features are those of the whole layer. Dimensions of the input before the last are rows:
    [sequence, batch, features], say, of which the first is divided among the ranks by sequence parallelism.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        bias_size: int | None,
        group: Group,
        sequence_parallel: bool,
        skip_bias_add: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.group = group  # which the name alone would not keep
        self.group_name = name_of(group)
        self.sequence_parallel = sequence_parallel
        self.skip_bias_add = skip_bias_add
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = None if bias_size is None else nn.Parameter(torch.zeros(bias_size, device=device, dtype=dtype))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def _finish(self, rows: Tensor, x: Tensor) -> Tensor | tuple[Tensor, nn.Parameter | None]:
        out = rows.view(-1, *x.shape[1:-1], rows.shape[-1])
        if self.skip_bias_add:
            return out, self.bias
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        rows, cols = self.weight.shape
        return f"weight=[{rows}, {cols}], bias={self.bias is not None}, sequence_parallel={self.sequence_parallel}"


class ColumnParallelLinear(_ParallelLinear):
    """Each rank computes a part of the output's features.

    sequence_parallel: the input's first dimension is divided among the ranks, and gathered while the product is
    computed. Otherwise the input is the same on all ranks.
    skip_bias_add: returns the output without bias, and the bias.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        group: Group,
        bias: bool = True,
        sequence_parallel: bool = True,
        skip_bias_add: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        part = _part(out_features, "out_features", communicator(group).ranks)
        super().__init__(
            (part, in_features), part if bias else None, group, sequence_parallel, skip_bias_add, device, dtype
        )

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, nn.Parameter | None]:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        multiply = all_gather_matmul if self.sequence_parallel else copy_matmul
        return self._finish(multiply(rows, self.weight, self.group_name), x)


class RowParallelLinear(_ParallelLinear):
    """Each rank has a part of the input's features; the products are added up over the ranks.

    sequence_parallel: each rank gets its part of the output's first dimension. Otherwise the output is the same on
    all ranks.
    skip_bias_add: returns the output without bias, and the bias. With sequence parallelism each rank computes the
    bias's gradient of its own rows: whoever updates it adds these up over the group, as for a norm's weight
    (`bias.sequence_parallel` is set, as Megatron expects).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        group: Group,
        bias: bool = True,
        sequence_parallel: bool = True,
        skip_bias_add: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        part = _part(in_features, "in_features", communicator(group).ranks)
        super().__init__(
            (out_features, part), out_features if bias else None, group, sequence_parallel, skip_bias_add, device, dtype
        )
        if self.bias is not None:
            self.bias.sequence_parallel = sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, nn.Parameter | None]:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        multiply = matmul_reduce_scatter if self.sequence_parallel else matmul_all_reduce
        return self._finish(multiply(rows, self.weight, self.group_name), x)
