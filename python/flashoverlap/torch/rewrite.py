"""Overlap in compiled models: matrix products next to functional collectives become single operations.

    torch._inductor.config.post_grad_custom_pre_pass = flashoverlap.torch.OverlapPass()

before `torch.compile`. Models with DTensor's tensor parallelism then need no other change. Replaced is what
communicates along dimension 0: a product that is reduced (`reduce_scatter_tensor`, `all_reduce`) and used nowhere
else, and the first product that reads what is gathered (`all_gather_into_tensor`); others read the gathered matrix.
"""

from operator import getitem
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node
from torch.fx.node import Target, map_arg

from flashoverlap.torch import operations

_aten = torch.ops.aten
_collectives = torch.ops._c10d_functional
_ours = operations._operations
_views = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
_computed = (torch.bfloat16, torch.float16)
_loaded = 8
"""Elements that GPUs load at a time."""


class OverlapPass(CustomGraphPass):
    """For Inductor's `post_grad_custom_pre_pass`: calls `overlap_products` on each graph."""

    def __call__(self, graph: Graph) -> None:
        overlap_products(graph)

    def uuid(self) -> str:
        """Changes with what the pass does, as Inductor keeps compiled graphs."""
        return "flashoverlap 4"


def overlap_products(graph: Graph, data_types: tuple[torch.dtype, ...] = _computed) -> int:
    """Replaces products and collectives in place, and returns how many collectives.

    data_types: of the products that are replaced; ranks on the host compute fp32 too. Nodes have `meta["val"]`.
    """
    replaced: list[Node] = []
    for waited in graph.find_nodes(op="call_function", target=_collectives.wait_tensor.default):
        collective: Any = waited.args[0]
        if waited.meta["val"].dtype not in data_types or len(collective.users) != 1:
            continue
        if _replace(graph, waited, collective):
            replaced.append(waited)
    graph.eliminate_dead_code()  # which leaves collectives, used or not
    for waited in replaced:
        collective = waited.args[0]
        graph.erase_node(waited)
        graph.erase_node(collective)
    graph.eliminate_dead_code()
    graph.lint()
    return len(replaced)


def _replace(graph: Graph, waited: Node, collective: Node) -> bool:
    arguments: Any = collective.args
    if collective.target is _collectives.all_gather_into_tensor.default:
        return _replace_gather(graph, waited, *arguments)
    if collective.target is _collectives.reduce_scatter_tensor.default:
        x, reduction, _, group = arguments
        scatters_rows = waited.meta["val"].dim() > 1
        return scatters_rows and _replace_reduction(
            graph, waited, _ours.matmul_reduce_scatter.default, x, reduction, group
        )
    if collective.target is _collectives.all_reduce.default:
        return _replace_reduction(graph, waited, _ours.matmul_all_reduce.default, *arguments)
    return False


def _replace_reduction(
    graph: Graph, waited: Node, operation: Target, x: Node, reduction: str, group: str
) -> bool:
    product = x
    while _keeps_rows(product) and len(product.users) == 1:
        product = product.args[0]  # type: ignore[assignment]
    if product.target is not _aten.mm.default or len(product.users) != 1 or reduction not in ("sum", "avg"):
        return False
    shape = [-1, *waited.meta["val"].shape[1:]]
    if not _is_known(shape):
        return False
    a, b = product.args
    if not (_is_readable(a) and _is_readable(b)):
        return False
    with graph.inserting_before(waited):
        weight = _transposed(graph, _readable(graph, b))
        result = _call(graph, operation, _readable(graph, a), weight, group)
        if reduction == "avg":
            result = _call(graph, _ours.mean_of_ranks.default, result, group)
        result = _call(graph, _aten.reshape.default, result, shape)
    waited.replace_all_uses_with(result)
    return True


def _replace_gather(graph: Graph, waited: Node, x: Node, ranks: int, group: str) -> bool:
    matrix = waited
    while len(matrix.users) == 1 and _keeps_rows(next(iter(matrix.users))):
        matrix = next(iter(matrix.users))
    users = [node for node in graph.nodes if node in matrix.users]
    if not users or users[0].target is not _aten.mm.default or users[0].args[0] is not matrix:
        return False
    first, *others = users
    shape = [-1, x.meta["val"].shape[-1]]
    weight: Any = first.args[1]
    if weight is matrix or not _is_known(shape) or shape[1] % _loaded != 0 or not _is_readable(weight):
        return False
    if others and x.meta["val"].dim() < 2:
        return False  # a vector of all ranks is one row, whose columns are gathered
    with graph.inserting_before(first):
        rows = x if x.meta["val"].is_contiguous() else _contiguous(graph, x)
        rows = _call(graph, _aten.reshape.default, rows, shape)
        weight = _transposed(graph, _readable(graph, weight))
        if others:
            pair = _call(graph, _ours.all_gather_matmul_and_gathered.default, rows, weight, group)
            result, gathered = (_call(graph, getitem, pair, index) for index in range(2))
        else:
            result = _call(graph, _ours.all_gather_matmul.default, rows, weight, group)
    first.replace_all_uses_with(result)
    for other in others:
        other.replace_input_with(matrix, gathered)
    return True


def _keeps_rows(node: Node) -> bool:
    """Whether a node is the same matrix, with other dimensions before the last."""
    return (
        node.target in _views
        and isinstance(node.args[0], Node)
        and node.meta["val"].shape[-1] == node.args[0].meta["val"].shape[-1]
    )


def _is_known(shape: list[Any]) -> bool:
    """Whether it has no symbols, which a graph has nodes for."""
    return all(isinstance(size, int) for size in shape)


def _is_readable(matrix: Any) -> bool:
    """Whether GPUs can load it, copied or not: 16 bytes at a time."""
    rows, cols = matrix.meta["val"].shape
    extent = rows if _lies_by_column(matrix) else cols
    return isinstance(extent, int) and extent % _loaded == 0


def _readable(graph: Graph, matrix: Any) -> Node:
    """The matrix, copied if neither its rows nor its columns are contiguous, or do not begin where GPUs can load."""
    value = matrix.meta["val"]
    by_row = value.stride(1) == 1 and value.stride(0) >= value.shape[1]
    pitch = value.stride(0) if by_row else value.stride(1)
    lies_well = (by_row or _lies_by_column(matrix)) and pitch % _loaded == 0 and value.storage_offset() % _loaded == 0
    return matrix if lies_well else _contiguous(graph, matrix)


def _lies_by_column(matrix: Any) -> bool:
    value = matrix.meta["val"]
    return value.stride(1) != 1 and value.stride(0) == 1 and value.stride(1) >= value.shape[0]


def _transposed(graph: Graph, matrix: Node) -> Node:
    return _call(graph, _aten.permute.default, matrix, [1, 0])  # Inductor takes no `t` where its passes run


def _contiguous(graph: Graph, x: Node) -> Node:
    """A copy."""
    node = graph.call_function(_aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
    node.meta["val"] = x.meta["val"].clone(memory_format=torch.contiguous_format)
    return node


def _call(graph: Graph, target: Any, *arguments: Any) -> Node:
    node = graph.call_function(target, arguments)
    values = map_arg(arguments, lambda argument: argument.meta["val"])
    node.meta["val"] = target(*values)
    return node
