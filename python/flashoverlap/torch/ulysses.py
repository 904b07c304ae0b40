"""Attention over a sequence that is divided among the ranks, each of which attends with some of the heads (Ulysses)."""

from collections.abc import Callable

import torch
import torch.nn.functional
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right

from flashoverlap.torch.groups import Group
from flashoverlap.torch.operations import all_to_all_matmul, matmul_all_to_all
from flashoverlap.torch.parts import GroupedModule, draw


class UlyssesAttention(GroupedModule):
    """x[sequence/ranks, batch, features] -> the same shape. Each rank projects its part of the sequence, and gets the
    queries, keys and values of its heads for the whole sequence; both all-to-alls are hidden in the projections.

    heads: of the queries.
    key_heads: of keys and values, each for heads/key_heads queries; heads where it is not given. The ranks divide both.
    head_features: of each head; features/heads where it is not given.
    causal: no position attends to later ones.
    query_slices: attention in as many parts, each of the same part of every rank's positions. On GPUs the result of a
        part is sent back and projected, on a stream of its own, while the next one is computed. 1: all at once.
        No other operation of the group then runs on another stream concurrently, nor in a parallel branch of the model.

    Weights are whole and the same on all ranks, and do not depend on the number of ranks. The rows of `qkv_weight` are
    for each key head its query heads, then its key, then its value (as in Megatron). Each rank computes the weights'
    gradients of its own part of the sequence: whoever updates them adds these up over the group.

    Raises ValueError for heads that the ranks do not divide, and for sizes and slices less than 1.
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
        query_slices: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        sizes = {"features": features, "heads": heads, "key_heads": key_heads, "query_slices": query_slices}
        if head_features is not None:
            sizes["head_features"] = head_features
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} = {size}: must be at least 1")
        self._join(group)
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
        self.causal = causal
        self.query_slices = query_slices
        self.queries_per_key = heads // key_heads
        self.head_features = head_features
        qkv_rows = (heads + 2 * key_heads) * head_features
        self.qkv_weight = nn.Parameter(torch.empty(qkv_rows, features, device=device, dtype=dtype))
        self.out_weight = nn.Parameter(torch.empty(features, heads * head_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.qkv_weight, self.out_weight):
            draw(weight)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 3:
            raise ValueError(f"x must have 3 dimensions, [sequence/ranks, batch, features], not {x.dim()}")
        batch, features = x.shape[1:]
        qkv = matmul_all_to_all(x.reshape(-1, features).contiguous(), self.qkv_weight, self.group_name)
        # [batch, key heads of this rank, queries per key + 2, sequence, head features]
        heads = qkv.view(-1, batch, qkv.shape[1] // self._key_columns, self.queries_per_key + 2, self.head_features)
        heads = heads.permute(1, 2, 3, 0, 4)
        query, key, value = heads.split([self.queries_per_key, 1, 1], dim=2)
        query, key = self.rotate(query.flatten(1, 2), key.squeeze(2))
        if self.query_slices == 1:
            return self._project(self.attend(query, key, value.squeeze(2))).view(x.shape)
        return self._attend_in_slices(query, key, value.squeeze(2)).view(x.shape)

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """This rank's heads, each [batch, heads, sequence, head_features], over the whole sequence. To be overridden
        where queries and keys are rotated by their positions."""
        return query, key

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Of this rank's heads, each [batch, heads, positions, head_features]. If it is causal the queries are those of
        the last positions that there are keys of. To be overridden for another kind of attention."""
        queries, keys = query.shape[2], key.shape[2]
        is_part = self.causal and queries < keys
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_earlier(queries, keys, query.device) if is_part else None,
            is_causal=self.causal and not is_part,
            enable_gqa=self.queries_per_key > 1,
        )

    def _attend_in_slices(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ranks = self.group.ranks
        own = query.shape[2] // ranks  # positions of each rank
        slices = min(self.query_slices, own)
        exchange = _Exchange(query.device)
        for part in range(slices):
            first, last = own * part // slices, own * (part + 1) // slices
            attended = []
            for start in range(0, ranks * own, own):
                seen = start + last if self.causal else ranks * own
                queries = query[:, :, start + first : start + last]
                attended.append(self.attend(queries, key[:, :, :seen], value[:, :, :seen]))
            exchange.enqueue(self._project, torch.cat(attended, dim=2))
        return torch.cat(exchange.results())

    def _project(self, attended: Tensor) -> Tensor:
        """This rank's heads at positions of all ranks, back to all heads at its own."""
        batch, _, positions, _ = attended.shape
        rows = attended.permute(2, 0, 1, 3).reshape(positions * batch, -1)
        return all_to_all_matmul(rows, self.out_weight, self.group_name)

    @property
    def _key_columns(self) -> int:
        """Of the projection, for each key head."""
        return (self.queries_per_key + 2) * self.head_features

    def extra_repr(self) -> str:
        rows, features = self.qkv_weight.shape
        key_heads = rows // self._key_columns
        return (
            f"features={features}, heads={key_heads * self.queries_per_key}, key_heads={key_heads}, "
            f"head_features={self.head_features}, causal={self.causal}, query_slices={self.query_slices}"
        )


def _earlier(queries: int, keys: int, device: torch.device) -> Tensor:
    """The mask of the last positions, which attend to no later ones."""
    # Neither a compiler nor a mode that sees operations, such as FlopCounterMode, takes the one that kernels know.
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return causal_lower_right(queries, keys)


class _Exchange:
    """Calls that follow each other on a stream of their own, where the device has streams. So do their gradients."""

    _streams: dict[torch.device, torch.cuda.Stream] = {}

    def __init__(self, device: torch.device) -> None:
        self._results: list[Tensor] = []
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda" and not torch.compiler.is_compiling():
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream(device)
            self._stream = self._streams[device]

    def enqueue(self, call: Callable[[Tensor], Tensor], operand: Tensor) -> None:
        if self._stream is None:
            self._results.append(call(operand))
            return
        self._stream.wait_stream(torch.cuda.current_stream(operand.device))
        operand.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            self._results.append(call(operand))

    def results(self) -> list[Tensor]:
        if self._stream is not None:
            stream = torch.cuda.current_stream(self._stream.device)
            stream.wait_stream(self._stream)
            for result in self._results:
                result.record_stream(stream)
        return self._results
