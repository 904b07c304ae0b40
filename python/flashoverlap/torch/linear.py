"""Linear layers whose weight is divided among the ranks of a group (tensor parallelism)."""

import torch
from torch import Tensor, nn

from flashoverlap.torch.groups import Group
from flashoverlap.torch.operations import (
    all_gather_matmul,
    copy_matmul,
    matmul_all_reduce,
    matmul_reduce_scatter,
)
from flashoverlap.torch.parts import GroupedModule, MarkedModule, draw_part, mark


class _ParallelLinear(MarkedModule, GroupedModule):
    """in_features and out_features are those of the whole layer; `weight` and `bias` are this rank's part. Seed all ranks
    alike before: the weights are the parts of what `nn.Linear` would draw, for any number of ranks.

    Dimensions of the input before the last are rows: [sequence, batch, features], say, of which sequence parallelism
    divides the first among the ranks.
    """

    _divides_outputs: bool
    _blocks = 1  # of the whole layer's rows, of each of which a rank has a part

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
        super().__init__()
        self._join(group)
        ranks = self.group.ranks
        features = out_features if self._divides_outputs else in_features
        if features // self._blocks % ranks != 0:
            raise ValueError(f"{self._divided_size(features)}: must be a multiple of the {ranks} ranks")
        rows, cols = (features // ranks, in_features) if self._divides_outputs else (out_features, features // ranks)
        self.sequence_parallel = sequence_parallel
        self.skip_bias_add = skip_bias_add
        self.weight = nn.Parameter(torch.empty(rows, cols, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if bias else None
        self._mark()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_part(self.weight, 0 if self._divides_outputs else 1, self.group, blocks=self._blocks)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _divided_size(self, features: int) -> str:
        """As error messages name it."""
        return f"{'out' if self._divides_outputs else 'in'}_features = {features}"

    def _mark(self) -> None:
        of_part = {"tensor_model_parallel": True, "partition_stride": self._blocks}
        mark(self._parameters.get("weight"), partition_dim=0 if self._divides_outputs else 1, **of_part)
        if self._divides_outputs:
            mark(self._parameters.get("bias"), partition_dim=0, **of_part)
        else:
            mark(self._parameters.get("bias"), sequence_parallel=self.sequence_parallel)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, nn.Parameter | None]:
        self.require_rows(x)
        product = self._multiply(x.reshape(-1, x.shape[-1]).contiguous())
        out = product.view(-1, *x.shape[1:-1], product.shape[-1])
        if self.skip_bias_add:
            return out, self.bias
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def require_rows(self, x: Tensor) -> None:
        """Raises ValueError for dimensions that the layer does not take."""
        if x.dim() < 2:
            raise ValueError(f"x must have at least 2 dimensions, not {x.dim()}")
        if not torch.compiler.is_compiling() and x.numel() == 0:  # which may be unknown there
            raise ValueError(f"shape of x = {list(x.shape)}: must have no dimension of 0")
        own_features = self.weight.shape[1]
        if x.shape[-1] != own_features:
            raise ValueError(f"x.shape[-1] = {x.shape[-1]}: must be {own_features}, as of this rank's weight")
        if self.sequence_parallel and not self._divides_outputs and x.shape[0] % self.group.ranks != 0:
            raise ValueError(f"x.shape[0] = {x.shape[0]}: must be a multiple of the {self.group.ranks} ranks")

    def _multiply(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        rows, cols = self.weight.shape
        return f"weight=[{rows}, {cols}], bias={self.bias is not None}, sequence_parallel={self.sequence_parallel}"


class ColumnParallelLinear(_ParallelLinear):
    """Each rank computes a part of the output's features.

    sequence_parallel: the input's first dimension is divided among the ranks, and gathered while the product is
    computed. Otherwise the input is the same on all ranks.
    skip_bias_add: returns the output without bias, and the bias.
    keep_gathered: an attribute. The backward pass gathers other ranks' rows once more, as Megatron does, hidden in the
    weight's gradient; with True the forward pass keeps them, which takes their memory and a copy.
    """

    _divides_outputs = True
    keep_gathered = False

    def _multiply(self, rows: Tensor) -> Tensor:
        if self.sequence_parallel:
            return all_gather_matmul(rows, self.weight, self.group_name, keep_gathered=self.keep_gathered)
        return copy_matmul(rows, self.weight, self.group_name)


class RowParallelLinear(_ParallelLinear):
    """Each rank has a part of the input's features; the products are added up over the ranks.

    sequence_parallel: each rank gets its part of the output's first dimension. Otherwise the output is the same on
    all ranks.
    skip_bias_add: returns the output without bias, and the bias. With sequence parallelism each rank computes the
    bias's gradient of its own rows: whoever updates it adds these up over the group, as for a norm's weight
    (`bias.sequence_parallel` is set, as Megatron expects).
    """

    _divides_outputs = False

    def _multiply(self, rows: Tensor) -> Tensor:
        multiply = matmul_reduce_scatter if self.sequence_parallel else matmul_all_reduce
        return multiply(rows, self.weight, self.group_name)
