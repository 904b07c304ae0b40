"""Divides the linear layers of an existing model among the ranks of a group."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import torch
from torch import nn

from flashoverlap.torch.groups import Group, communicator
from flashoverlap.torch.linear import ColumnParallelLinear, RowParallelLinear

Kind: TypeAlias = Literal["column", "row"]


def parallelize(
    module: nn.Module,
    group: Group | torch.distributed.device_mesh.DeviceMesh,
    plan: Mapping[str, Kind],
    *,
    sequence_parallel: bool = True,
) -> nn.Module:
    """Replaces `nn.Linear` layers of `module` in place, and returns it.

    plan: names of layers, with * for any text, and how each is divided: "column" by output features (query, key,
    value, gate and up projections), "row" by input features (output and down projections). `group`: a communicator,
    a process group, or a device mesh of one dimension. Each rank keeps its part of the weights, which must be the same
    on all ranks before; a weight that is tied to another one is not any more.

    Raises ValueError, before anything is replaced, for a pattern that no linear layer in `module` has, for a layer with
    two patterns that differ, for one that has another name which is not in the plan, for one that may do more than
    `nn.Linear` (LoRA, hooks, parametrizations), for one of an `nn.TransformerEncoderLayer`, which reads weights itself,
    and for features that the ranks do not divide.
    """
    if isinstance(group, torch.distributed.device_mesh.DeviceMesh):
        group = group.get_group()
    kinds = _kinds(module, plan)
    ranks = communicator(group).ranks
    places = []  # all, before the first is replaced: a layer and what it belongs to may have several names
    for name, kind in kinds.items():
        layer = module.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        extent = "out_features" if kind == "column" else "in_features"
        features = getattr(layer, extent)
        if features % ranks != 0:
            raise ValueError(f"{extent} of {name} = {features}: must be a multiple of the {ranks} ranks")
        parent, _, attribute = name.rpartition(".")
        owner = module.get_submodule(parent)
        if isinstance(owner, nn.TransformerEncoderLayer):
            raise ValueError(
                f'plan: "{name}" belongs to a TransformerEncoderLayer, which reads its weight in evaluation and does not '
                "call it: write the block with layers of your own"
            )
        places.append((owner, attribute, layer, kind))
    divided: dict[nn.Module, nn.Module] = {}
    for owner, attribute, layer, kind in places:
        if layer not in divided:
            divided[layer] = _divided(layer, group, kind, sequence_parallel)
        setattr(owner, attribute, divided[layer])
    return module


def _kinds(module: nn.Module, plan: Mapping[str, Kind]) -> dict[str, Kind]:
    """How each layer is divided, by its name."""
    linears = {
        name: layer
        for name, layer in module.named_modules(remove_duplicate=False)
        if isinstance(layer, nn.Linear) and layer is not module
    }
    kinds: dict[str, Kind] = {}
    of_layers: dict[nn.Module, Kind] = {}
    for pattern, kind in plan.items():
        if kind not in ("column", "row"):
            raise ValueError(f'plan: "{kind}" must be "column" or "row"')
        names = [name for name in linears if fnmatchcase(name, pattern)]
        if not names:
            raise ValueError(f'plan: "{pattern}" is the name of no linear layer')
        for name in names:
            if of_layers.setdefault(linears[name], kind) != kind:
                raise ValueError(f'plan: "{name}" is divided by column and by row')
            kinds[name] = kind
    for name, layer in linears.items():
        if layer in of_layers and name not in kinds:
            raise ValueError(f'plan: "{name}" is a layer that is divided under another name, and must be in the plan')
    for name in kinds:
        _require_plain(name, linears[name])
    return kinds


def _require_plain(name: str, layer: nn.Linear) -> None:
    """Raises ValueError for what its replacement would not do."""
    hooks = [
        *(layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks),
        *(layer._state_dict_hooks, layer._state_dict_pre_hooks),
        *(layer._load_state_dict_pre_hooks, layer._load_state_dict_post_hooks),
    ]
    for parameter in layer.parameters(recurse=False):
        hooks += [parameter._backward_hooks or {}, parameter._post_accumulate_grad_hooks or {}]
    has_more = layer._buffers or layer._modules or layer._parameters.keys() - {"weight", "bias"}
    # Parametrizations change the type.
    if type(layer) is not nn.Linear or "forward" in vars(layer) or has_more or any(hooks):
        raise ValueError(
            f'plan: "{name}" is a {type(layer).__name__} that may do more than nn.Linear (a class or a forward of its '
            "own, hooks of it or its weights, parametrizations, buffers or modules): divide the layers before"
        )


def _divided(layer: nn.Linear, group: Group, kind: Kind, sequence_parallel: bool) -> nn.Module:
    by_columns = kind == "column"
    divided = (ColumnParallelLinear if by_columns else RowParallelLinear)(
        layer.in_features,
        layer.out_features,
        group=group,
        bias=layer.bias is not None,
        sequence_parallel=sequence_parallel,
        device="meta",  # nothing is drawn
        dtype=layer.weight.dtype,
    ).to_empty(device=layer.weight.device)
    ranks, rank = communicator(group).ranks, communicator(group).rank
    with torch.no_grad():
        divided.weight.copy_(layer.weight.chunk(ranks, 0 if by_columns else 1)[rank])
        if divided.bias is not None:
            divided.bias.copy_(layer.bias.chunk(ranks)[rank] if by_columns else layer.bias)
            divided.bias.requires_grad_(layer.bias.requires_grad)
    divided.weight.requires_grad_(layer.weight.requires_grad)
    divided.train(layer.training)
    return divided
