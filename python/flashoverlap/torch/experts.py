"""Experts on several ranks: rows go to the ranks of the experts that were chosen for them, and come back.

Both ways are matrix products with all-to-alls before or after them, and take new routes with every call. What a rank
sends and receives is known on the host, so that neither CUDA graphs nor `torch.compile(fullgraph=True)` take them in;
without `fullgraph` the graph is divided there.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional
from torch import Tensor, nn

from flashoverlap._core import InvalidArgument, Problem
from flashoverlap.operations import keep, kept
from flashoverlap.operators import AnyCommunicator, Operator
from flashoverlap.torch.activation import swiglu
from flashoverlap.torch.groups import Group, communicator, named
from flashoverlap.torch.once import differentiable_once, of_a_product
from flashoverlap.torch.operations import autocast
from flashoverlap.torch.parts import GroupedModule, MarkedModule, draw, mark

_names_of_types = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}

_routes_of: "WeakKeyDictionary[Operator, object]" = WeakKeyDictionary()
"""The `_identity` of the routes that each operator has taken last: routes themselves keep their communicator alive."""


class ExpertRoutes:
    """Where the rows of one `dispatch_matmul` have gone.

    experts: on each rank.
    rows: that this rank has sent, and gets back.
    of_ranks: of_ranks[r][t · experts + e] rows of rank r have gone to expert e of rank t.
    ends: where the rows of each of this rank's experts end, of what `by_expert` has sorted.
    """

    def __init__(
        self, group: AnyCommunicator, experts: int, expert_rows: Sequence[int], most_rows: int, capacity: int
    ) -> None:
        self.experts = experts
        self.rows = sum(expert_rows)
        self.of_ranks: list[list[int]] = []  # after the first exchange
        self._own = list(expert_rows)
        self._group = group
        self._most_rows = most_rows
        self._capacity = capacity
        self._identity = object()
        self._order: Tensor | None = None  # once it is asked for

    @property
    def received(self) -> int:
        """Rows that this rank's experts have got."""
        return sum(self._received())

    def by_expert(self, received: Tensor) -> Tensor:
        """A copy of [received, ...] as `dispatch_matmul` returns it, sorted by this rank's experts."""
        if self._order is None:
            self._order, self.ends = self._sorted(received.device)
        return received.index_select(0, self._order)

    def _sorted(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Which row comes when rows are sorted by expert, and where each expert's end."""
        of_parts = self._received()
        firsts = list(itertools.accumulate(of_parts, initial=0))
        parts = [part for expert in range(self.experts) for part in range(expert, len(of_parts), self.experts)]
        counts = [of_parts[part] for part in parts]
        ends = list(itertools.accumulate(counts))
        moves = [firsts[part] - end + rows for part, end, rows in zip(parts, ends, counts, strict=True)]
        ranks = len(of_parts) // self.experts
        on_device = torch.tensor([moves, counts, ends])
        if device.type == "cuda":  # without waiting until the GPU has done all that is enqueued
            on_device = on_device.pin_memory().to(device, non_blocking=True)
        order = torch.arange(ends[-1], device=device)
        order += on_device[0].repeat_interleave(on_device[1], output_size=ends[-1])
        ends_of_experts = on_device[2, ranks - 1 :: ranks]
        # Of a single one it would keep its stride, which PyTorch's grouped products refuse.
        return order, ends_of_experts.to(torch.int32, memory_format=torch.contiguous_format)

    def dispatch(
        self, x: Tensor, weight: Tensor, *, transposed: bool = False, keeps_received: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The product of received rows with each expert's weight [experts, n, k], or with its transpose, and if asked
        for the rows themselves. These are valid until another operation of the group. No gradients."""
        operator = self._operator("all_to_all_gemm", weight, transposed)
        if not self.of_ranks:
            operator.route(self._own)
            self.of_ranks = operator.problem.expert_rows
            _routes_of[operator] = self._identity
        self._take(operator, self.of_ranks)
        a, b = x.contiguous(), _matrix(weight, transposed)
        return operator.run_and_gather(a, b) if keeps_received else (operator.run(a, b), None)

    def combine(self, x: Tensor, weight: Tensor, *, transposed: bool = False) -> Tensor:
        """The same product of the rows of this rank's experts, each then sent back to where it came from."""
        operator = self._operator("gemm_all_to_all", weight, transposed)
        self._take(operator, [self._received(rank) for rank in range(self._group.ranks)])
        return operator.run(x.contiguous(), _matrix(weight, transposed))

    def _received(self, rank: int | None = None) -> list[int]:
        """Of every rank, the rows for each expert of one: this one, where none is given."""
        first = (self._group.rank if rank is None else rank) * self.experts
        return [rows for each in self.of_ranks for rows in each[first : first + self.experts]]

    def _take(self, operator: Operator, of_ranks: list[list[int]]) -> None:
        if _routes_of.get(operator) is not self._identity:
            operator.route_all(of_ranks)
            _routes_of[operator] = self._identity

    def _operator(self, operation: str, weight: Tensor, transposed: bool) -> Operator:
        """For all routes of these sizes. Made the first time, which is collective."""
        experts, n, k = weight.shape
        if weight.dtype not in _names_of_types:
            raise TypeError(f"weight is {weight.dtype}: must be one of {', '.join(map(str, _names_of_types))}")
        if transposed:
            n, k = k, n
        sizes = (operation, experts, n, k, self._most_rows, self._capacity, weight.dtype, transposed)
        key = repr(sizes).encode()
        operator = kept(self._group.operators, key)
        if operator is None:
            problem = Problem(
                "all_to_all_gemm",
                m=self._most_rows,
                n=n,
                k=k,
                ranks=self._group.ranks,
                data_type=_names_of_types[weight.dtype],
                b_layout="row_contiguous" if transposed else "k_contiguous",
                experts=experts,
                expert_rows=_even_rows(self._most_rows, self._group.ranks, experts),
                capacity=self._capacity,
            )
            if operation == "gemm_all_to_all":
                problem = problem.returning(n=n, k=k)
            operator = Operator(problem, self._group)
            keep(self._group.operators, key, operator)
        return operator


def _even_rows(rows: int, ranks: int, experts: int) -> list[list[int]]:
    """Routes that operators are predicted and measured with: each rank sends and receives `rows`."""
    entries = ranks * experts
    least, more = divmod(rows, entries)
    return [
        [least + ((entry - rank * experts) % entries < more) for entry in range(entries)] for rank in range(ranks)
    ]


def _matrix(weight: Tensor, transposed: bool) -> Tensor:
    """The experts' weights as an operator takes them, where they lie."""
    return weight.flatten(0, 1).t() if transposed else weight.flatten(0, 1)


def _gradient_of_weight(gradient: Tensor, x: Tensor, routes: ExpertRoutes) -> Tensor:
    """One plain product for each expert: their k, which are the rows received, differ. Both are sorted by expert."""
    can_load = gradient.shape[1] % 8 == 0 and x.shape[1] % 8 == 0  # 16 bytes at a time
    if hasattr(torch.nn.functional, "grouped_mm") and can_load and len(x) > 0:
        return torch.nn.functional.grouped_mm(gradient.t(), x, offs=routes.ends)
    sizes = [end - first for first, end in itertools.pairwise([0, *routes.ends.tolist()])]
    return torch.stack([of_product.t() @ rows for of_product, rows in zip(gradient.split(sizes), x.split(sizes))])


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, routes: ExpertRoutes, learns: bool) -> Tensor:
        product, received = routes.dispatch(x, weight, keeps_received=learns)
        ctx.routes = routes
        ctx.save_for_backward(None if received is None else routes.by_expert(received), weight)
        return product

    @staticmethod
    @differentiable_once(of_a_product)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        received, weight = ctx.saved_tensors
        routes = ctx.routes
        wanted_x, wanted_weight, *_ = ctx.needs_input_grad
        return (
            routes.combine(gradient, weight, transposed=True) if wanted_x else None,
            _gradient_of_weight(routes.by_expert(gradient), received, routes) if wanted_weight else None,
            None,
            None,
        )


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, routes: ExpertRoutes) -> Tensor:
        ctx.routes = routes
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return routes.combine(x, weight)

    @staticmethod
    @differentiable_once(of_a_product)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        routes = ctx.routes
        of_x, received = routes.dispatch(gradient, weight, transposed=True, keeps_received=ctx.needs_input_grad[1])
        if received is None:
            return of_x, None, None
        return of_x, _gradient_of_weight(routes.by_expert(received), routes.by_expert(x), routes), None


def _require_operands(x: Tensor, rows: int, rows_are: str, weight: Tensor, experts: int) -> None:
    if weight.dim() != 3 or len(weight) != experts:
        raise ValueError(f"weight has the shape {list(weight.shape)}: must be [experts of this rank, n, k]")
    if x.dim() != 2 or len(x) != rows:
        raise ValueError(f"x has the shape {list(x.shape)}: must have 2 dimensions, and {rows_are} = {rows} rows")
    if x.shape[1] != weight.shape[2]:
        rule = f"must have {weight.shape[2]} columns, as weight has"
        raise ValueError(f"x has the shape {list(x.shape)}: {rule}")
    if x.dtype != weight.dtype:
        raise TypeError(f"x is {x.dtype}: must be {weight.dtype}, as weight is")


def dispatch_matmul(
    x: Tensor,
    weight: Tensor,
    expert_rows: Sequence[int],
    group: Group,
    *,
    most_rows: int | None = None,
    capacity: int | None = None,
) -> tuple[Tensor, ExpertRoutes]:
    """Sends rows to experts, and multiplies them there: the product [received, n], and the routes for the way back.

    x: [rows, k], sorted by expert, rank 0's experts first.
    weight: [experts, n, k] of this rank's experts.
    expert_rows: how many rows of x each expert of all ranks gets, ranks · experts numbers. They may be 0.
    most_rows: the most rows that a rank ever has, the same on all ranks; where it is not given all have as many as x.
    capacity: the most rows that a rank ever receives, the same on all ranks and at least most_rows; where it is not
        given all that there can be, ranks · most_rows.

    Received rows are those of rank 0, then those of rank 1, ..., each rank's sorted by expert. Collective. Raises
    InvalidArgument on every rank, naming the one it is about, for routes that do not fit; ValueError and TypeError for
    shapes and data types that do not belong together.
    """
    found = communicator(group)
    most_rows = len(x) if most_rows is None else most_rows
    all_rows = found.ranks * most_rows
    capacity = all_rows if capacity is None else min(capacity, all_rows)
    x, weight = autocast(x, weight)
    _require_operands(x, sum(expert_rows), "sum(expert_rows)", weight, len(weight))
    routes = ExpertRoutes(found, len(weight), expert_rows, most_rows, capacity)
    learns = torch.is_grad_enabled() and weight.requires_grad
    return _Dispatch.apply(x, weight, routes, learns), routes


def matmul_combine(x: Tensor, weight: Tensor, routes: ExpertRoutes) -> Tensor:
    """Multiplies what the experts of this rank have made, and sends it back: [rows, n], in the order of the rows that
    were dispatched.

    x: [received, k], in the order of `dispatch_matmul`'s product. weight: [experts, n, k]. Collective.
    """
    x, weight = autocast(x, weight)
    _require_operands(x, routes.received, "routes.received", weight, routes.experts)
    product: Tensor = _Combine.apply(x, weight, routes)
    return product


class _Reorder(torch.autograd.Function):
    """x[order // copies] of [rows, features], where `order` has each of rows · copies numbers once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.copies = copies
        ctx.save_for_backward(inverse)
        return x.index_select(0, order // copies)

    @staticmethod
    @differentiable_once(lambda ctx: False)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        copied = gradient.index_select(0, inverse)
        return copied.unflatten(0, (len(copied) // ctx.copies, ctx.copies)).sum(1), None, None, None


class _WeightedSum(torch.autograd.Function):
    """As products, which read the results once."""

    @staticmethod
    def forward(ctx: Any, results: Tensor, scores: Tensor) -> Tensor:
        ctx.save_for_backward(results, scores)
        return torch.bmm(scores.to(results.dtype).unsqueeze(1), results).squeeze(1)

    @staticmethod
    @differentiable_once(of_a_product)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        results, scores = ctx.saved_tensors
        of_results = scores.to(results.dtype).unsqueeze(2) * gradient.unsqueeze(1)
        return of_results, torch.bmm(results, gradient.unsqueeze(2)).squeeze(2).to(scores.dtype)


def weighted_sum(results: Tensor, scores: Tensor) -> Tensor:
    """Σ over j of scores[i, j] · results[i, j], of [rows, copies, features] and [rows, copies], in the results' data
    type."""
    (results,) = autocast(results)
    mixed: Tensor = _WeightedSum.apply(results, scores)
    return mixed


class ExpertParallelMoE(MarkedModule, GroupedModule):
    """A mixture of experts, of which each rank has some: x[..., features] -> the same shape.

    Each expert is a gated feed-forward, (silu(x · Wgᵀ) ⊙ (x · Wuᵀ)) · Wdᵀ. Each rank has tokens of its own. For each of
    them a router chooses `top_k` experts, whose results are added up with the router's scores. No token is dropped.

    experts: of all ranks, which divide them.
    max_tokens: the most that a rank has in one call, the same on all ranks; where it is not given all ranks have
        equally many, and each number of them has operators of its own.
    capacity_factor: the most rows that a rank may receive, as a multiple of max_tokens · top_k, which is what it gets
        of even routes. Memory is made for so many, and more raise InvalidArgument on every rank. Where it is not
        given, all rows of all ranks fit.

    `gate_up_weight` [experts of this rank, 2 · hidden_features, features], of each the rows of Wg, then those of Wu,
    and `down_weight` [experts of this rank, features, hidden_features] are this rank's, and so are their gradients. The
    router is the same on all ranks, and its gradient is that of the rank's own tokens: whoever updates it adds these up
    over the group.

    Raises ValueError for experts that the ranks do not divide, and a top_k, max_tokens or capacity_factor
    without sense.
    """

    def __init__(
        self,
        features: int,
        hidden_features: int,
        experts: int,
        top_k: int,
        *,
        group: Group,
        max_tokens: int | None = None,
        capacity_factor: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._join(group)
        ranks = self.group.ranks
        if experts % ranks != 0:
            raise ValueError(f"experts = {experts}: must be a multiple of the {ranks} ranks")
        if not 1 <= top_k <= experts:
            raise ValueError(f"top_k = {top_k}: must be 1 to experts = {experts}")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens = {max_tokens}: must be at least 1")
        if capacity_factor is not None and not 1 <= capacity_factor < math.inf:
            raise ValueError(f"capacity_factor = {capacity_factor}: must be at least 1, and finite")
        self.experts, self.top_k = experts, top_k
        self.max_tokens, self.capacity_factor = max_tokens, capacity_factor
        own = experts // ranks
        self.router = nn.Linear(features, experts, bias=False, device=device, dtype=dtype)
        self.gate_up_weight = nn.Parameter(torch.empty(own, 2 * hidden_features, features, device=device, dtype=dtype))
        self.down_weight = nn.Parameter(torch.empty(own, features, hidden_features, device=device, dtype=dtype))
        self._mark()
        self.reset_parameters()

    def _mark(self) -> None:
        if self.group.ranks > 1:  # Megatron then adds up no gradients of different experts
            mark(self._parameters.get("gate_up_weight"), allreduce=False)
            mark(self._parameters.get("down_weight"), allreduce=False)

    def reset_parameters(self) -> None:
        """Draws those of all experts, so that ranks with equal seeds have different ones and go on from equal states."""
        if self.gate_up_weight.is_meta:
            return
        own, first = len(self.gate_up_weight), self.group.rank * len(self.gate_up_weight)
        for weights in (self.gate_up_weight, self.down_weight):
            drawn = torch.empty_like(weights[0])
            for expert in range(self.experts):
                draw(drawn)
                if first <= expert < first + own:
                    weights.data[expert - first].copy_(drawn)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        scores, chosen = self.choose(tokens)
        return self._mix(tokens, scores, chosen).view(x.shape)

    def choose(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and numbers of the experts of each of tokens[tokens, features], both [tokens, top_k]: the experts with
        the largest logits, and the softmax of these. To be overridden for another router."""
        logits, chosen = self.router(tokens).topk(self.top_k)
        return logits.softmax(-1, dtype=torch.float32), chosen

    def activate(self, gate_up: Tensor) -> Tensor:
        """From both projections of the rows received to the features between them. To be overridden."""
        return swiglu(gate_up)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _mix(self, tokens: Tensor, scores: Tensor, chosen: Tensor) -> Tensor:
        (tokens,) = autocast(tokens)
        numbers = chosen.flatten()
        order = numbers.argsort(stable=True)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), device=order.device)
        expert_rows = numbers.bincount(minlength=self.experts).tolist()
        most_rows = (len(tokens) if self.max_tokens is None else self.max_tokens) * self.top_k
        capacity = None if self.capacity_factor is None else math.ceil(self.capacity_factor * most_rows)
        rows = _Reorder.apply(tokens, order, inverse, self.top_k)
        try:
            gate_up, routes = dispatch_matmul(
                rows,
                self.gate_up_weight,
                expert_rows,
                named(self.group_name),
                most_rows=most_rows,
                capacity=capacity,
            )
        except InvalidArgument:  # which every rank has raised, so that none waits for this one
            if self.max_tokens is not None and len(tokens) > self.max_tokens:
                rule = f"must be at most max_tokens = {self.max_tokens}"
                raise InvalidArgument(f"tokens of x = {len(tokens)}: {rule}") from None
            raise
        results = matmul_combine(self.activate(gate_up), self.down_weight, routes)
        results = _Reorder.apply(results, inverse, order, 1).unflatten(0, chosen.shape)
        return weighted_sum(results, scores)

    def extra_repr(self) -> str:
        own, features, hidden_features = self.down_weight.shape
        return (
            f"features={features}, hidden_features={hidden_features}, experts={self.experts}, of this rank={own}, "
            f"top_k={self.top_k}, max_tokens={self.max_tokens}, capacity_factor={self.capacity_factor}"
        )
