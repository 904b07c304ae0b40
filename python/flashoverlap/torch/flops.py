"""What `torch.utils.flop_counter.FlopCounterMode` counts of the operations: this rank's products, as of `torch.mm`."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch.utils.flop_counter import register_flop_formula

import flashoverlap.torch.norm  # noqa: F401  # which defines some of what is counted
from flashoverlap.torch.operations import _operations


def _of_product(x: Sequence[int], weight: Sequence[int], result: Sequence[int]) -> int:
    """A part of the product is the result where ranks reduce and scatter it, and a part of a factor is an operand where
    they gather it. The larger one is the whole."""
    return 2 * max(x[0] * weight[0] * x[1], prod(result) * weight[1])


@register_flop_formula(
    [
        _operations.matmul_all_reduce,
        _operations.matmul_reduce_scatter,
        _operations.all_gather_matmul,
        _operations.matmul_all_to_all,
        _operations.all_to_all_matmul,
        _operations.copy_matmul,
        _operations.sharded_weight_matmul,
    ]
)
def _of_one_result(x: Sequence[int], weight: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
    return _of_product(x, weight, out_shape)


@register_flop_formula(
    [
        _operations.all_gather_matmul_and_gathered,
        _operations.all_to_all_matmul_and_exchanged,
        _operations.matmul_all_reduce_rms_norm,
        _operations.matmul_reduce_scatter_rms_norm,
    ]
)
def _of_first_result(
    x: Sequence[int], weight: Sequence[int], *_: Any, out_shape: Sequence[Sequence[int]], **__: Any
) -> int:
    return _of_product(x, weight, out_shape[0])


@register_flop_formula([_operations.row_parallel_gradients, _operations.matmul_all_to_all_gradients])
def _of_both_gradients(gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * 2 * prod(x) * weight[0]
