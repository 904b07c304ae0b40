"""What differs between NumPy, PyTorch and CuPy."""

import sys
from typing import Any

from flashoverlap._core import InvalidArgument


def empty_like(array: Any, shape: tuple[int, int], name: str = "a") -> Any:
    """An array of the same library, data type and device, with another shape.

    name: the array's, for errors.
    """
    if hasattr(array, "new_empty"):  # PyTorch, and what is derived from its tensors
        return array.new_empty(shape)
    library = type(array).__module__.partition(".")[0]
    if library in ("numpy", "cupy"):
        return sys.modules[library].empty(shape, dtype=array.dtype)
    kind = type(array).__name__
    if not hasattr(array, "__dlpack__"):
        rule = f"must be a matrix that speaks DLPack, as of NumPy, PyTorch or CuPy, not {kind}"
        raise TypeError(f"{name}: {rule}")
    raise TypeError(f"out: must be given for matrices of type {kind}")


def begin_writing(out: Any) -> None:
    """Tells PyTorch that these values change, so that a backward pass that needs them raises. Raises
    InvalidArgument for a tensor that requires gradients, which would be wrong."""
    if not hasattr(out, "new_empty"):
        return
    torch = sys.modules["torch"]
    if out.requires_grad and torch.is_grad_enabled():
        raise InvalidArgument(
            "out.requires_grad = True: must be False, as nothing here has gradients; flashoverlap.torch has "
            "operations with them"
        )
    torch.autograd.graph.increment_version(out)


def _library_of(array: Any) -> Any:
    """NumPy or CuPy."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def concatenate(arrays: list[Any]) -> Any:
    """The rows of all, one after the other."""
    if hasattr(arrays[0], "new_empty"):
        return sys.modules["torch"].cat(arrays)
    return _library_of(arrays[0]).concatenate(arrays)


def first_rows(array: Any, rows: int) -> Any:
    """In the same memory. For PyTorch no view of another tensor, which could not be changed in place where it has
    gradients."""
    part = array[:rows]
    return part.data if hasattr(part, "new_empty") else part


def copy_rows(source: Any, to: Any, parts: int = 1) -> None:
    """The first rows of each of this many equal parts, as many as the smaller one has. `to` is dense, and so is
    `source` in several parts; of PyTorch's tensors nothing is recorded."""
    if hasattr(to, "new_empty"):
        source = source.detach()
    rows = min(len(source), len(to)) // parts
    cols = to.shape[1]
    to.reshape(parts, -1, cols)[:, :rows] = source.reshape(parts, -1, cols)[:, :rows]


def packed(array: Any, layout: str) -> Any:
    """The same values without padding between rows, or, in layout "row_contiguous", between columns: a copy where there
    was some."""
    if layout == "row_contiguous":
        return packed(array.T, "k_contiguous").T
    if hasattr(array, "new_empty"):
        return array.contiguous()
    return _library_of(array).ascontiguousarray(array)


def from_dlpack(like: Any, array: Any) -> Any:
    """The same memory as an array of the library that `like` belongs to."""
    if hasattr(like, "new_empty"):
        return sys.modules["torch"].from_dlpack(array)
    return _library_of(like).from_dlpack(array)
