"""Matrix products that communicate, as PyTorch operations with gradients.

Matrices have two dimensions, and `weight` is [n, k], as in `torch.nn.functional.linear`. Gradients are overlapped
like the products. What is the same on all ranks, as the result of an all-reduce, has the same gradient on all of
them, as in Megatron: gradients are added up over the ranks where each rank has computed a part of them.

There are first derivatives only, by the backward pass: asking for second ones raises RuntimeError, and for
those of forward mode NotImplementedError. Under `torch.autocast` operands are cast as those of `torch.matmul`
are.

`weight_is_constant` promises that the kernel that the stream runs right before does not write the weight, as
none does during inference: on GPUs the weight may then be loaded while that kernel ends. It counts in calls
without gradients, CUDA graphs included, and is ignored with gradients, under `torch.compile`, and where
`torch.autocast` casts the weight.

`keep_gathered` has the forward pass copy what it has gathered, for the weight's gradient, as plain PyTorch keeps it.
Otherwise the backward pass gathers once more, hidden in that gradient's product. It counts where that is wanted.

A group may also be given by the name that `groups.name_of` returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flashoverlap._core import InvalidArgument, problem_of
from flashoverlap.operations import Exchange, Gathered, operator_for, run
from flashoverlap.operators import AnyCommunicator
from flashoverlap.torch.groups import Group, communicator, name_of, named
from flashoverlap.torch.once import differentiable_once, of_a_product

library = torch.library.Library("flashoverlap", "DEF")  # noqa: TOR901
_operations = torch.ops.flashoverlap
_computations: dict[str, Callable[..., Tensor]] = {}
"""What operations do, by name."""
_with_gradients: dict[str, type[torch.autograd.Function]] = {}
"""The same with its gradients, as the operation has them."""


def matmul_all_reduce(
    x: Tensor, weight: Tensor, group: Group | str, *, weight_is_constant: bool = False
) -> Tensor:
    """Σ over ranks of x[m, k] · weightᵀ, on every rank: a row-parallel layer."""
    return _run("matmul_all_reduce", x, weight, group, weight_is_constant)


def matmul_reduce_scatter(
    x: Tensor, weight: Tensor, group: Group | str, *, weight_is_constant: bool = False
) -> Tensor:
    """This rank's rows of Σ over ranks of x[m, k] · weightᵀ: a row-parallel layer with sequence parallelism."""
    return _run("matmul_reduce_scatter", x, weight, group, weight_is_constant)


def all_gather_matmul(
    x: Tensor, weight: Tensor, group: Group | str, *, weight_is_constant: bool = False, keep_gathered: bool = False
) -> Tensor:
    """X · weightᵀ, where each rank has rows of X: a column-parallel layer with sequence parallelism."""
    keeps = keep_gathered and x.stride(-1) == 1 and x.shape[-1] == weight.shape[-1]  # gathered by rows
    kept = "all_gather_matmul_and_gathered" if keeps else None
    return _run("all_gather_matmul", x, weight, group, weight_is_constant, keeping=kept)


def matmul_all_to_all(x: Tensor, weight: Tensor, group: Group | str) -> Tensor:
    """C = x[m, k] · weightᵀ, whose columns are divided among the ranks, which get them of the rows of all: out[ranks·m,
    n/ranks], from a part of the sequence to a part of the heads."""
    return _run("matmul_all_to_all", x, weight, group)


def all_to_all_matmul(x: Tensor, weight: Tensor, group: Group | str) -> Tensor:
    """X · weight[n, k]ᵀ, where x[ranks·m, k/ranks] has this rank's columns of the rows of all, and X[m, k] all columns
    of its rows: from a part of the heads back to a part of the sequence."""
    return _run("all_to_all_matmul", x, weight, group, keeping="all_to_all_matmul_and_exchanged")


def copy_matmul(x: Tensor, weight: Tensor, group: Group | str) -> Tensor:
    """x · weightᵀ, where x is the same on all ranks, which add up its gradient: a column-parallel layer."""
    return _run("copy_matmul", x, weight, group)


def sharded_weight_matmul(x: Tensor, weight: Tensor, group: Group | str) -> Tensor:
    """x · Wᵀ, where each rank has rows of W, gets the gradient of these, added up over the ranks, and has an x
    of its own: data parallelism with sharded weights."""
    return _run("sharded_weight_matmul", x, weight, group)


def _run(
    name: str,
    x: Tensor,
    weight: Tensor,
    group: Group | str,
    weight_is_constant: bool = False,
    *,
    keeping: str | None = None,
) -> Tensor:
    """The operation of this name; where the weight's gradient is wanted `keeping`, which also returns what that needs.

    PyTorch's dispatcher would take several times the Python that a call takes itself, so it is asked only where
    somebody else must see the call.
    """
    require_no_tangents(x, weight)
    x, cast_weight = autocast(x, weight)
    product: Tensor
    chosen = keeping if keeping is not None and cast_weight.requires_grad and torch.is_grad_enabled() else name
    if not _concerns_only_autograd(x, cast_weight):
        result = getattr(_operations, chosen)(x, cast_weight, name_of(group))
        product = result if chosen == name else result[0]
        return product
    if torch.is_grad_enabled() and (x.requires_grad or cast_weight.requires_grad):
        product = _with_gradients[chosen].apply(x, cast_weight, name_of(group))
        return product
    compute = _computations[name]
    if weight_is_constant and cast_weight is weight:  # which the kernel right before has written otherwise
        return compute(x, weight, _communicator(group), b_is_constant=True)
    return compute(x, cast_weight, _communicator(group))


refusals = InvalidArgument, TypeError, ValueError
"""What wrong arguments raise."""


def renamed(
    refusal: Exception, gemm: str, x: Tensor, weight: Tensor, group: AnyCommunicator, gathered: Gathered = "a"
) -> Exception:
    """The same refusal of x and weight, which the library calls a and b, under these names; others as they
    are."""
    where = f"cuda:{group.device}" if hasattr(group, "device") else "cpu"
    for name, operand in (("x", x), ("weight", weight)):
        if operand.layout == torch.strided and str(operand.device) != where:
            return InvalidArgument(f"device of {name} = {operand.device}: must be {where}, the group's")
    try:
        problem_of(gemm, x, weight, group.ranks, "heads", gathered, "x", "weight")
    except refusals as same:
        return same
    return refusal


def _computing(gemm: str, exchange: Exchange = "rows", gathered: Gathered = "a") -> Callable[..., Tensor]:
    """What an operation does."""

    def compute(x: Tensor, weight: Tensor, group: AnyCommunicator, *, b_is_constant: bool = False) -> Tensor:
        try:
            product: Tensor = run(gemm, x, weight, group, None, exchange, gathered, b_is_constant)
            return product
        except refusals as refusal:
            raise renamed(refusal, gemm, x, weight, group, gathered) from None

    return compute


def keep_communicator(ctx: Any, output: Tensor | None) -> None:
    """Until the backward pass, as its name alone would not. Not where `torch.compile` traces with tensors of its
    own: the code that it makes stays as long as the process."""
    if output is None or type(output) is Tensor:
        ctx.communicator = named(ctx.group)


def require_no_tangents(*operands: Tensor | None) -> None:
    """Raises NotImplementedError for derivatives by forward mode, which would be lost."""
    if forward_ad._current_level < 0:
        return
    may_be_hidden = torch._C._functorch.peek_interpreter_stack() is not None  # by transforms inside of jvp
    given = [each for each in operands if each is not None]
    if may_be_hidden or any(forward_ad.unpack_dual(each).tangent is not None for each in given):
        raise NotImplementedError(
            "tangents of operands (torch.func.jvp, torch.autograd.forward_ad): must be none, as operations of"
            " flashoverlap.torch have no derivatives by forward mode; use backward or torch.autograd.grad"
        )


def autocast(*operands: Tensor) -> tuple[Tensor, ...]:
    """In the data type that `torch.autocast` gives matrix products, if it is on; fp64 as it is."""
    if not is_autocast(operands[0]):
        return operands
    cast_to = torch.get_autocast_dtype(operands[0].device.type)
    return tuple(each if each.dtype == torch.float64 else each.to(cast_to) for each in operands)


def is_autocast(operand: Tensor) -> bool:
    if not torch._C._is_any_autocast_enabled():  # faster than asking for a device
        return False
    device = operand.device.type
    return device in ("cuda", "cpu") and torch.is_autocast_enabled(device)


def _concerns_only_autograd(x: Tensor, weight: Tensor) -> bool:
    """Whether neither a tensor's class nor a mode nor a transformation wants to see the operation."""
    return (
        type(x) in _plain_tensors
        and type(weight) in _plain_tensors
        and not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not (x.is_meta or x.is_neg() or weight.is_neg())  # what PyTorch resolves on the way to an operation
    )


_plain_tensors = (Tensor, torch.nn.Parameter)


def _communicator(group: Group | str) -> AnyCommunicator:
    return named(group) if isinstance(group, str) else communicator(group)


def _define(name: str, compute: Callable[..., Tensor], shape: Callable[[Tensor, Tensor, int], tuple[int, int]]) -> None:
    """An operation of x, weight and the group's name."""

    def on_communicator(x: Tensor, weight: Tensor, group: str) -> Tensor:
        return compute(x, weight, named(group))

    def fake(x: Tensor, weight: Tensor, group: str) -> Tensor:
        if x.dim() != 2 or weight.dim() != 2:
            raise ValueError(f"{name}: x and weight must have 2 dimensions, not {x.dim()} and {weight.dim()}")
        return x.new_empty(shape(x, weight, named(group).ranks))

    _computations[name] = compute
    library.define(f"{name}(Tensor x, Tensor weight, str group) -> Tensor")
    for device in ("CPU", "CUDA"):
        library.impl(name, on_communicator, device)
    torch.library.register_fake(f"flashoverlap::{name}", fake, lib=library)


@dataclass(frozen=True)
class Gradients:
    """Functions of the result's gradient, x or weight or both, and the group's name. of_weight is None where it comes
    from `both` alone."""

    of_x: Callable[..., Tensor]
    of_weight: Callable[..., Tensor] | None
    both: Callable[..., tuple[Tensor, Tensor]] | None = None

    def operands(
        self, x: Tensor, weight: Tensor, wanted_x: bool, wanted_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Those that `compute` needs of x and weight."""
        needs_weight = wanted_x or (wanted_weight and self.of_weight is None)
        return x if wanted_weight else None, weight if needs_weight else None

    def compute(
        self,
        gradient: Tensor,
        x: Tensor | None,
        weight: Tensor | None,
        group: str,
        wanted_x: bool,
        wanted_weight: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        gradient = gradient.contiguous()
        if wanted_weight and self.both is not None and (wanted_x or self.of_weight is None):
            return self.both(gradient, x, weight, group)
        return (
            self.of_x(gradient, weight, group) if wanted_x else None,
            self.of_weight(gradient, x, group) if wanted_weight and self.of_weight is not None else None,
        )


gradients_of: dict[str, Gradients] = {}
"""By operation."""


def _differentiate(name: str, gradients: Gradients, *, of_rows: bool = False) -> None:
    """of_rows: what is gathered must be rows."""
    gradients_of[name] = gradients

    def save(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor | None) -> None:
        x, weight, ctx.group = inputs
        keep_communicator(ctx, output)
        if of_rows and x.dim() == weight.dim() == 2 and x.shape[1] != weight.shape[1]:
            raise ValueError(
                f"{name}: columns of x = {x.shape[1]}, of weight = {weight.shape[1]}: must be equal where gradients are "
                "wanted, as only what is gathered by rows has them"
            )
        ctx.save_for_backward(*gradients.operands(x, weight, *ctx.needs_input_grad[:2]))

    @differentiable_once(of_a_product)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wanted_x, wanted_weight = ctx.needs_input_grad[:2]
        return *gradients.compute(gradient, x, weight, ctx.group, wanted_x, wanted_weight), None

    compute = _computations[name]

    def forward(ctx: Any, x: Tensor, weight: Tensor, group: str) -> Tensor:
        save(ctx, (x, weight, group), None)
        return compute(x, weight, ctx.communicator)

    torch.library.register_autograd(f"flashoverlap::{name}", backward, setup_context=save, lib=library)
    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    _with_gradients[name] = type(name, (torch.autograd.Function,), functions)


_define(
    "matmul_all_reduce",
    _computing("gemm_all_reduce"),
    lambda x, weight, ranks: (x.shape[0], weight.shape[0]),
)
_define(
    "matmul_reduce_scatter",
    _computing("gemm_reduce_scatter"),
    lambda x, weight, ranks: (x.shape[0] // ranks, weight.shape[0]),
)
_define(
    "all_gather_matmul",
    _computing("all_gather_gemm"),
    # Where k is not contiguous in x, each rank has a part of it instead of rows.
    lambda x, weight, ranks: (
        x.shape[0] * (1 if x.shape[1] * ranks == weight.shape[1] else ranks),
        weight.shape[0],
    ),
)
_define(
    "sharded_weight_matmul",
    _computing("all_gather_gemm", gathered="b"),
    lambda x, weight, ranks: (
        x.shape[0],
        weight.shape[0] * (1 if weight.shape[1] * ranks == x.shape[1] else ranks),
    ),
)
_define(
    "matmul_all_to_all",
    _computing("gemm_all_to_all", "heads"),
    lambda x, weight, ranks: (x.shape[0] * ranks, weight.shape[0] // ranks),
)
_define(
    "all_to_all_matmul",
    _computing("all_to_all_gemm", "heads"),
    lambda x, weight, ranks: (x.shape[0] // ranks, weight.shape[0]),
)


def _copy_gemm(x: Tensor, weight: Tensor, group: AnyCommunicator) -> Tensor:
    for name, operand in (("x", x), ("weight", weight)):
        if operand.dim() != 2:
            raise ValueError(f"{name}: must have 2 dimensions, not {operand.dim()}")
    return x @ weight.t()


_define("copy_matmul", _copy_gemm, lambda x, weight, ranks: (x.shape[0], weight.shape[0]))


library.define("mean_of_ranks(Tensor sum, str group) -> Tensor")  # a compiled graph may serve any number of ranks
for _device in ("CPU", "CUDA"):
    library.impl("mean_of_ranks", lambda sum, group: sum / named(group).ranks, _device)
torch.library.register_fake("flashoverlap::mean_of_ranks", lambda sum, group: torch.empty_like(sum), lib=library)


# Two results of what is gathered or exchanged once


def _all_gather_matmul_and_gathered(x: Tensor, weight: Tensor, group: str) -> tuple[Tensor, Tensor]:
    try:
        operator = operator_for("all_gather_gemm", x, weight, named(group))
        return operator.run_and_gather(x, weight, keep=True)
    except refusals as refusal:
        raise renamed(refusal, "all_gather_gemm", x, weight, named(group)) from None


def _row_parallel_gradients(gradient: Tensor, x: Tensor, weight: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """Of matmul_reduce_scatter's x and weight. The result's gradient is gathered for both."""
    operator = operator_for("all_gather_gemm", gradient, weight.t(), named(group))
    gradient_of_x, gathered = operator.run_and_gather(gradient, weight.t())
    return gradient_of_x, gathered.t() @ x


def _all_to_all_matmul_and_exchanged(x: Tensor, weight: Tensor, group: str) -> tuple[Tensor, Tensor]:
    try:
        operator = operator_for("all_to_all_gemm", x, weight, named(group), "heads")
        product, gathered = operator.run_and_gather(x, weight)
    except refusals as refusal:
        raise renamed(refusal, "all_to_all_gemm", x, weight, named(group)) from None
    ranks = operator.problem.ranks
    blocks = gathered.view(ranks, -1, x.shape[1])
    exchanged = x.new_empty(blocks.shape[1], ranks * x.shape[1])
    exchanged.view(-1, ranks, x.shape[1]).copy_(blocks.transpose(0, 1))
    return product, exchanged


def _matmul_all_to_all_gradients(gradient: Tensor, x: Tensor, weight: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """Of matmul_all_to_all's x and weight. The result's gradient is exchanged for both."""
    operator = operator_for("all_to_all_gemm", gradient, weight.t(), named(group), "heads")
    gradient_of_x, gathered = operator.run_and_gather(gradient, weight.t())
    blocks = gathered.view(operator.problem.ranks, *x.shape[:1], gradient.shape[1])
    gradient_of_weight = blocks.transpose(1, 2) @ x.expand(len(blocks), -1, -1)
    return gradient_of_x, gradient_of_weight.view(weight.shape)


def _define_pair(signature: str, compute: Callable[..., tuple[Tensor, Tensor]], fake: Callable[..., Any]) -> None:
    name = signature.partition("(")[0]
    library.define(signature)
    for device in ("CPU", "CUDA"):
        library.impl(name, compute, device)
    torch.library.register_fake(f"flashoverlap::{name}", fake, lib=library)


_define_pair(
    "all_gather_matmul_and_gathered(Tensor x, Tensor weight, str group) -> (Tensor, Tensor)",
    _all_gather_matmul_and_gathered,
    lambda x, weight, group: (
        x.new_empty(x.shape[0] * named(group).ranks, weight.shape[0]),
        x.new_empty(x.shape[0] * named(group).ranks, x.shape[1]),
    ),
)
_define_pair(
    "row_parallel_gradients(Tensor gradient, Tensor x, Tensor weight, str group) -> (Tensor, Tensor)",
    _row_parallel_gradients,
    lambda gradient, x, weight, group: (x.new_empty(x.shape), weight.new_empty(weight.shape)),
)
_define_pair(
    "all_to_all_matmul_and_exchanged(Tensor x, Tensor weight, str group) -> (Tensor, Tensor)",
    _all_to_all_matmul_and_exchanged,
    lambda x, weight, group: (
        x.new_empty(x.shape[0] // named(group).ranks, weight.shape[0]),
        x.new_empty(x.shape[0] // named(group).ranks, x.shape[1] * named(group).ranks),
    ),
)
_define_pair(
    "matmul_all_to_all_gradients(Tensor gradient, Tensor x, Tensor weight, str group) -> (Tensor, Tensor)",
    _matmul_all_to_all_gradients,
    lambda gradient, x, weight, group: (x.new_empty(x.shape), weight.new_empty(weight.shape)),
)


# Gradients

_differentiate(
    "matmul_all_reduce",
    Gradients(
        lambda gradient, weight, group: gradient @ weight,
        lambda gradient, x, group: gradient.t() @ x,
    ),
)
_differentiate(
    "copy_matmul",
    Gradients(
        lambda gradient, weight, group: _operations.matmul_all_reduce(gradient, weight.t(), group),
        lambda gradient, x, group: gradient.t() @ x,
    ),
)
_differentiate(
    "matmul_reduce_scatter",
    Gradients(
        lambda gradient, weight, group: _operations.all_gather_matmul(gradient, weight.t(), group),
        lambda gradient, x, group: _operations.all_gather_matmul(gradient.t(), x.t(), group),
        both=_operations.row_parallel_gradients,
    ),
)
_differentiate(
    "all_gather_matmul",
    Gradients(
        lambda gradient, weight, group: _operations.matmul_reduce_scatter(gradient, weight.t(), group),
        lambda gradient, x, group: _operations.sharded_weight_matmul(gradient.t(), x.t(), group),
    ),
    of_rows=True,
)
_differentiate(
    "sharded_weight_matmul",
    Gradients(
        lambda gradient, weight, group: _operations.sharded_weight_matmul(gradient, weight.t(), group),
        lambda gradient, x, group: _operations.matmul_reduce_scatter(gradient.t(), x.t(), group),
    ),
    of_rows=True,
)
_differentiate(
    "matmul_all_to_all",
    Gradients(
        lambda gradient, weight, group: _operations.all_to_all_matmul(gradient, weight.t(), group),
        None,
        both=_operations.matmul_all_to_all_gradients,
    ),
)
_differentiate(
    "all_to_all_matmul",
    Gradients(
        lambda gradient, weight, group: _operations.matmul_all_to_all(gradient, weight.t(), group),
        None,
        both=lambda gradient, x, weight, group: (
            _operations.matmul_all_to_all(gradient, weight.t(), group),
            gradient.t() @ _operations.all_to_all_matmul_and_exchanged(x, weight, group)[1],
        ),
    ),
)


def _differentiate_keeping(
    name: str, compute: Callable[..., tuple[Tensor, Tensor]], gradient_of_x: Callable[..., Tensor]
) -> None:
    """Of an operation that also returns what it has received, of which the weight's gradient is made."""

    def keep(ctx: Any, weight: Tensor, group: str, received: Tensor) -> None:
        ctx.group = group
        keep_communicator(ctx, received)
        wanted_x, wanted_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(received if wanted_weight else None, weight if wanted_x else None)

    def save(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        keep(ctx, *inputs[1:], output[1])

    @differentiable_once(of_a_product)
    def backward(ctx: Any, gradient: Tensor, _: None = None) -> tuple[Tensor | None, Tensor | None, None]:
        received, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        wanted_x, wanted_weight, _ = ctx.needs_input_grad
        return (
            gradient_of_x(gradient, weight, ctx.group) if wanted_x else None,
            gradient.t() @ received if wanted_weight else None,
            None,
        )

    def forward(ctx: Any, x: Tensor, weight: Tensor, group: str) -> Tensor:
        product, received = compute(x, weight, group)
        keep(ctx, weight, group, received)
        return product

    torch.library.register_autograd(f"flashoverlap::{name}", backward, setup_context=save, lib=library)
    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    _with_gradients[name] = type(name, (torch.autograd.Function,), functions)


_differentiate_keeping(
    "all_gather_matmul_and_gathered",
    _all_gather_matmul_and_gathered,
    lambda gradient, weight, group: _operations.matmul_reduce_scatter(gradient, weight.t(), group),
)
_differentiate_keeping(
    "all_to_all_matmul_and_exchanged",
    _all_to_all_matmul_and_exchanged,
    lambda gradient, weight, group: _operations.matmul_all_to_all(gradient, weight.t(), group),
)
