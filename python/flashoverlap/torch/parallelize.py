"""Divides the linear layers of an existing model among the ranks of a group."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import nn

from flashoverlap.torch.groups import Group, communicator
from flashoverlap.torch.linear import ColumnParallelLinear, RowParallelLinear


def parallelize(
    module: nn.Module,
    group: Group,
    plan: Mapping[str, Literal["column", "row"]],
    *,
    sequence_parallel: bool = True,
) -> nn.Module:
    """Replaces `nn.Linear` layers of `module` in place, and returns it.

    plan: names of layers, with * for any text, and how each is divided: "column" by output features (query, key,
    value, gate and up projections), "row" by input features (output and down projections). `group`: a communicator,
    a process group, or a device mesh of one dimension. Each rank keeps its part of the weights, which must be the same
    on all ranks before. Raises ValueError for a pattern that no linear layer has.
    """
    if isinstance(group, torch.distributed.device_mesh.DeviceMesh):
        group = group.get_group()
    for pattern, kind in plan.items():
        layers = [
            name for name, each in module.named_modules() if isinstance(each, nn.Linear) and fnmatchcase(name, pattern)
        ]
        if not layers:
            raise ValueError(f'plan: "{pattern}" is the name of no linear layer')
        for name in layers:
            parent = module.get_submodule(name.rpartition(".")[0])
            layer = module.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            setattr(parent, name.rpartition(".")[2], _divided(layer, group, kind, sequence_parallel))
    return module


def _divided(layer: nn.Linear, group: Group, kind: str, sequence_parallel: bool) -> nn.Module:
    if kind not in ("column", "row"):
        raise ValueError(f'plan: "{kind}" must be "column" or "row"')
    by_columns = kind == "column"
    divided = (ColumnParallelLinear if by_columns else RowParallelLinear)(
        layer.in_features,
        layer.out_features,
        group=group,
        bias=layer.bias is not None,
        sequence_parallel=sequence_parallel,
        device=layer.weight.device,
        dtype=layer.weight.dtype,
    )
    ranks, rank = communicator(group).ranks, communicator(group).rank
    with torch.no_grad():
        divided.weight.copy_(layer.weight.chunk(ranks, 0 if by_columns else 1)[rank])
        if divided.bias is not None:
            divided.bias.copy_(layer.bias.chunk(ranks)[rank] if by_columns else layer.bias)
    return divided
