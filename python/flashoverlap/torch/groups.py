"""Which communicator a group is, and by which name operations know it: PyTorch's take texts."""

from typing import TypeAlias, Union
from weakref import WeakValueDictionary

import torch.distributed

from flashoverlap.operations import AnyCommunicator

Group: TypeAlias = Union[AnyCommunicator, "torch.distributed.ProcessGroup"]

_by_name: "WeakValueDictionary[str, AnyCommunicator]" = WeakValueDictionary()
_of_process_groups: dict[str, AnyCommunicator] = {}


def name_of(group: Group | str) -> str:
    """The name that `named` finds the group's communicator by. Collective where a process group is new."""
    if isinstance(group, str):
        return group
    name = communicator(group).name
    if isinstance(group, torch.distributed.ProcessGroup):
        return group.group_name
    _by_name.setdefault(name, group)
    return name


def communicator(group: Group) -> AnyCommunicator:
    """The communicator of a process group, which is made the first time; any other is returned as it is."""
    if not isinstance(group, torch.distributed.ProcessGroup):
        return group
    return named(group.group_name)


def named(name: str) -> AnyCommunicator:
    """The communicator of this name, or of the process group of this name, which is made the first time."""
    found = _by_name.get(name) or _of_process_groups.get(name)
    if found is None:
        from torch._C._distributed_c10d import _resolve_process_group as resolve

        from flashoverlap.gpu import Communicator

        group = resolve(name)  # type: ignore[arg-type]  # newer versions have a type for names
        found = _of_process_groups[name] = Communicator.from_process_group(group)
    return found
