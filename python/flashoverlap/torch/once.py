"""Operations that can be differentiated once."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

_refusal = b"trying to differentiate twice an operation of flashoverlap, which has first derivatives only"

Backward = Callable[..., tuple[Tensor | None, ...]]


def differentiable_once(depends_on_inputs: Callable[[Any], bool]) -> Callable[[Backward], Backward]:
    """As PyTorch's `once_differentiable`, which raises where gradients of the gradients are asked for. That sees only
    whether the incoming gradient has some.

    depends_on_inputs: whether the gradients change with inputs that need gradients themselves, by the context.
    """

    def decorate(backward: Backward) -> Backward:
        @wraps(backward)
        def checked(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
            with torch.no_grad():
                results = backward(ctx, *gradients)
            if not torch.is_grad_enabled():
                return results
            if not depends_on_inputs(ctx) and not any(each is not None and each.requires_grad for each in gradients):
                return results
            refuse = torch._C._functions.DelayedError(_refusal, len(results))
            marked = [None if each is None else each.detach().requires_grad_() for each in results]
            return refuse(*marked)  # type: ignore[arg-type]  # as PyTorch does

        return checked

    return decorate


def of_a_product(ctx: Any) -> bool:
    """The gradient of one factor is a product with the other one."""
    return all(ctx.needs_input_grad[:2])
