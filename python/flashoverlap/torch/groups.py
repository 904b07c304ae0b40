"""Which communicator a group is, and by which name operations know it: PyTorch's take texts."""

from typing import TYPE_CHECKING, TypeAlias, Union

import torch.distributed
from torch._C._distributed_c10d import _resolve_process_group as resolve

from flashoverlap._core import InvalidArgument
from flashoverlap.operators import AnyCommunicator, communicators

Group: TypeAlias = Union[AnyCommunicator, "torch.distributed.ProcessGroup"]

if TYPE_CHECKING:
    from flashoverlap.gpu import Communicator

_of_process_groups: "dict[str, tuple[torch.distributed.ProcessGroup, Communicator]]" = {}


def name_of(group: Group | str) -> str:
    """The name that `named` finds the group's communicator by. It says how many ranks there are, as shapes depend on
    that: a compiled graph is kept on disk under the names that are in it."""
    if isinstance(group, str):
        return group
    if isinstance(group, torch.distributed.ProcessGroup):
        return f"{group.group_name}@{group.size()}"
    return communicator(group).name


def communicator(group: Group, *, wait_limit: float = 30) -> AnyCommunicator:
    """The communicator of a process group, which is made the first time, and again after it was closed: collective. Any
    other is returned as it is.

    wait_limit: see `flashoverlap.Communicator`. It counts when the communicator is made, so ask for it before the first
    layer or operation does.
    """
    if isinstance(group, torch.distributed.ProcessGroup):
        return named(group.group_name, wait_limit)
    if not hasattr(group, "ranks"):
        raise TypeError(f"group = {group!r}: must be a communicator or a process group that this rank belongs to")
    return group


def named(name: str, wait_limit: float = 30) -> AnyCommunicator:
    """The communicator of this name, or of the process group of this name, which is made the first time: collective."""
    found = communicators.get(name)
    if found is not None:
        return found
    name = name.split("@")[0]
    try:
        group = resolve(name)  # type: ignore[arg-type]  # newer versions have a type for names
    except RuntimeError:
        raise InvalidArgument(
            f'group = "{name}": must be a process group or communicator that still exists; keep the '
            "communicator for as long as its name is used"
        ) from None
    known, made = _of_process_groups.get(name, (None, None))
    if made is None or made.is_closed or known is not group:  # names come again after destroy_process_group
        from flashoverlap.gpu import Communicator

        made = Communicator.from_process_group(group, wait_limit=wait_limit)
        _of_process_groups[name] = group, made
    return made
