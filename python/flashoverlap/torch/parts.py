"""Modules whose parameters are a rank's part of larger ones: their group, how their parameters begin, and the
attributes that Megatron reads."""

from typing import Any

import torch
from torch import Tensor, nn

from flashoverlap.operators import AnyCommunicator
from flashoverlap.torch.groups import Group, communicator, name_of, named


def draw(weight: Tensor) -> None:
    """As `nn.Linear` does."""
    nn.init.kaiming_uniform_(weight, a=5**0.5)


def draw_part(part: Tensor, dim: int, group: AnyCommunicator, *, blocks: int = 1) -> None:
    """Fills this rank's part of a weight with what `nn.Linear` draws for the whole of it: from equal seeds the ranks get
    the parts of one weight, the same for any number of ranks, and go on from equal states.

    dim: by which the weight is divided. blocks: of its rows, each of which is divided by itself.
    """
    if part.is_meta:
        return
    shape = [size * (group.ranks if each == dim else 1) for each, size in enumerate(part.shape)]
    whole = torch.empty(shape, device=part.device, dtype=part.dtype)
    draw(whole)
    with torch.no_grad():
        torch.cat([block.chunk(group.ranks, dim)[group.rank] for block in whole.chunk(blocks)], out=part.data)


class GroupedModule(nn.Module):
    """Belongs to a group. One that was pickled finds the group again by its name: that must then exist."""

    def _join(self, group: Group) -> None:
        self.group = communicator(group)  # which the name alone would not keep
        self.group_name = name_of(group)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        del state["group"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.group = named(self.group_name)


class MarkedModule(nn.Module):
    """Has parameters with attributes of their own, which are set again where PyTorch makes new parameters: in deep
    copies, by `to_empty`, by `load_state_dict(assign=True)`."""

    def _mark(self) -> None:
        raise NotImplementedError

    def _apply(self, *arguments: Any, **keywords: Any) -> "MarkedModule":
        super()._apply(*arguments, **keywords)
        self._mark()
        return self

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:
        super()._load_from_state_dict(*arguments, **keywords)
        self._mark()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._mark()


def mark(parameter: Tensor | None, **attributes: object) -> None:
    """What somebody has set already stays."""
    for name, value in attributes.items():
        if parameter is not None and not hasattr(parameter, name):
            setattr(parameter, name, value)
