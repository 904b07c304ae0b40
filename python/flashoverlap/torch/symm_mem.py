"""The operations of `torch.ops.symm_mem` for fused matrix products, with the same arguments:
`torch.ops.flashoverlap.fused_matmul_reduce_scatter` and `fused_all_gather_matmul`."""

import torch
from torch import Tensor

from flashoverlap.torch.groups import named
from flashoverlap.torch.operations import _operations, autocast, library, require_no_tangents


def _as_matrix(x: Tensor, first: int) -> tuple[Tensor, torch.Size]:
    """x with dimension `first` first, as rows, and the sizes of the dimensions that are not the last."""
    if not 0 <= first < x.dim() - 1:
        raise ValueError(f"dimension {first} of {x.dim()}: must be one before the last, from 0 on")
    moved = x.movedim(first, 0)
    return moved.reshape(-1, moved.shape[-1]), moved.shape[:-1]


def _from_matrix(matrix: Tensor, sizes: torch.Size, first: int) -> Tensor:
    return matrix.view(-1, *sizes[1:], matrix.shape[-1]).movedim(0, first)


def _fused_matmul_reduce_scatter(A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> Tensor:
    if reduce_op not in ("sum", "avg"):
        raise ValueError(f'reduce_op = "{reduce_op}": must be "sum" or "avg"')
    require_no_tangents(A, B)
    A, B = autocast(A, B)
    matrix, sizes = _as_matrix(A, scatter_dim)
    if 1 not in matrix.stride():
        matrix = matrix.contiguous()
    scattered = _operations.matmul_reduce_scatter(matrix, B.t(), group_name)
    if reduce_op == "avg":
        scattered = scattered / named(group_name).ranks
    return _from_matrix(scattered, sizes, scatter_dim)


def _fused_all_gather_matmul(
    A: Tensor, Bs: list[Tensor], gather_dim: int, group_name: str, *, return_A: bool = True
) -> tuple[Tensor | None, list[Tensor]]:
    if not Bs:
        raise ValueError("Bs = []: must hold one matrix or more")
    require_no_tangents(A, *Bs)
    A, *Bs = autocast(A, *Bs)
    matrix, sizes = _as_matrix(A, gather_dim)
    matrix = matrix.contiguous()  # rows are gathered
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in (A, *Bs))
    if differentiable and return_A:
        raise ValueError("return_A = True: has no gradient; must be False where one is needed")
    if return_A or (len(Bs) > 1 and not differentiable):
        product, gathered = _operations.all_gather_matmul_and_gathered(matrix, Bs[0].t(), group_name)
        products = [product, *(gathered @ B for B in Bs[1:])]
    else:
        gathered, products = None, [_operations.all_gather_matmul(matrix, B.t(), group_name) for B in Bs]
    whole = _from_matrix(gathered, sizes, gather_dim) if return_A else None
    return whole, [_from_matrix(each, sizes, gather_dim) for each in products]


library.define(
    "fused_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name) -> Tensor"
)
library.impl("fused_matmul_reduce_scatter", _fused_matmul_reduce_scatter, "CompositeImplicitAutograd")
library.define(
    "fused_all_gather_matmul(Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, bool return_A=True) "
    "-> (Tensor?, Tensor[])"
)
library.impl("fused_all_gather_matmul", _fused_all_gather_matmul, "CompositeImplicitAutograd")
