"""Attention over a sequence that is divided among the ranks, each of which attends with some of the heads (Ulysses)."""

import torch
import torch.nn.functional
from torch import Tensor, nn

from flashoverlap.torch.groups import Group, communicator, name_of
from flashoverlap.torch.operations import all_to_all_matmul, matmul_all_to_all


class UlyssesAttention(nn.Module):
    """x[sequence/ranks, batch, features] -> the same shape. Each rank projects its part of the sequence, and gets the
    queries, keys and values of its heads for the whole sequence; both all-to-alls are hidden in the projections.

    heads: of the queries.
    key_heads: of keys and values, each for heads/key_heads queries; heads where it is not given. The ranks divide both.
    head_features: of each head; features/heads where it is not given.
    causal: no position attends to later ones.

    Weights are whole and the same on all ranks, and do not depend on the number of ranks. The rows of `qkv_weight` are
    for each key head its query heads, then its key, then its value (as in Megatron). Each rank computes the weights'
    gradients of its own part of the sequence: whoever updates them adds these up over the group.

    Raises ValueError for heads that the ranks do not divide.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        key_heads: int | None = None,
        head_features: int | None = None,
        *,
        group: Group,
        causal: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        self.group = communicator(group)  # which the name alone would not keep
        ranks = self.group.ranks
        if heads % key_heads != 0:
            raise ValueError(f"heads = {heads}: must be a multiple of key_heads = {key_heads}")
        if key_heads % ranks != 0:
            name = "heads" if key_heads == heads else "key_heads"
            raise ValueError(f"{name} = {key_heads}: must be a multiple of the {ranks} ranks")
        if head_features is None:
            if features % heads != 0:
                raise ValueError(f"features = {features}: must be a multiple of heads = {heads} without head_features")
            head_features = features // heads
        self.group_name = name_of(group)
        self.causal = causal
        self.queries_per_key = heads // key_heads
        self.head_features = head_features
        qkv_rows = (heads + 2 * key_heads) * head_features
        self.qkv_weight = nn.Parameter(torch.empty(qkv_rows, features, device=device, dtype=dtype))
        self.out_weight = nn.Parameter(torch.empty(features, heads * head_features, device=device, dtype=dtype))
        for weight in (self.qkv_weight, self.out_weight):
            nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 3:
            raise ValueError(f"x must have 3 dimensions, [sequence/ranks, batch, features], not {x.dim()}")
        batch, features = x.shape[1:]
        qkv = matmul_all_to_all(x.reshape(-1, features).contiguous(), self.qkv_weight, self.group_name)
        # [batch, key heads of this rank, queries per key + 2, sequence, head features]
        heads = qkv.view(-1, batch, qkv.shape[1] // self._key_columns, self.queries_per_key + 2, self.head_features)
        heads = heads.permute(1, 2, 3, 0, 4)
        query, key, value = heads.split([self.queries_per_key, 1, 1], dim=2)
        attended = self.attend(query.flatten(1, 2), key.squeeze(2), value.squeeze(2))
        rows = attended.permute(2, 0, 1, 3).reshape(len(qkv), -1)
        return all_to_all_matmul(rows, self.out_weight, self.group_name).view(x.shape)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Of this rank's heads, each [batch, heads, sequence, head_features], over the whole sequence. To be overridden
        where queries and keys are rotated by their positions, say."""
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal, enable_gqa=self.queries_per_key > 1
        )

    @property
    def _key_columns(self) -> int:
        """Of the projection, for each key head."""
        return (self.queries_per_key + 2) * self.head_features

    def extra_repr(self) -> str:
        rows, features = self.qkv_weight.shape
        key_heads = rows // self._key_columns
        return (
            f"features={features}, heads={key_heads * self.queries_per_key}, key_heads={key_heads}, "
            f"head_features={self.head_features}, causal={self.causal}"
        )
