"""cuBLASMp as a peer of shapes.py: its C API, through ctypes. The library is loaded when this is imported.

Its matrices are column-major, so the rows of A[m, k] · B[n, k]ᵀ are the columns of what it computes, with
B as its "A" and A as its "B".
"""

import atexit
import contextlib
import ctypes
import functools
import importlib.metadata
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

from case import Case  # before PyTorch
from measuring import Failed, World, nccl_version

import torch
import torch.distributed as dist
from torch import Tensor

PACKAGE, LIBRARY = "nvidia-cublasmp-cu13", "libcublasmp.so.0"
LEAST_NCCL = (2, 29, 2)

# Values of enumerations of cublasmp.h, cublas_api.h and library_types.h.
TALL, WIDE = 0, 1  # CUBLASMP_GRID_LAYOUT_COL_MAJOR, _ROW_MAJOR
TRANSPOSE_A, TRANSPOSE_B, ALGORITHM, EPILOGUE, COMMUNICATION_TYPE = 0, 1, 3, 5, 27  # attributes
ALGORITHMS = {"default": 0, "split_p2p": 1, "no_overlap": 5}
EPILOGUE_ALL_REDUCE = 1
NOT_TRANSPOSED, TRANSPOSED = 0, 1  # CUBLAS_OP_N, _T
COMPUTE_FP32 = 68  # CUBLAS_COMPUTE_32F
BF16 = 14  # CUDA_R_16BF

TIMINGS = 3  # of each way to compute, of which the least counts
SCALARS = (ctypes.c_float * 2)(1, 0)
ONE, ZERO = ctypes.addressof(SCALARS), ctypes.addressof(SCALARS) + ctypes.sizeof(ctypes.c_float)

OPERAND = (c_void_p, c_int64, c_int64, c_void_p)  # memory, first row and column from 1, descriptor
MATMUL = (c_void_p, c_void_p, *[c_int64] * 3, c_void_p, *OPERAND, *OPERAND, c_void_p, *OPERAND, *OPERAND)
SIGNATURES = {
    "cublasMpCreate": (POINTER(c_void_p), c_void_p),
    "cublasMpDestroy": (c_void_p,),
    "cublasMpSetStream": (c_void_p, c_void_p),
    "cublasMpGridCreate": (c_int64, c_int64, c_int, c_void_p, POINTER(c_void_p)),
    "cublasMpGridDestroy": (c_void_p,),
    "cublasMpMalloc": (c_void_p, POINTER(c_void_p), c_size_t),
    "cublasMpFree": (c_void_p, c_void_p),
    "cublasMpMatrixDescriptorCreate": (*[c_int64] * 7, c_int, c_void_p, POINTER(c_void_p)),
    "cublasMpMatrixDescriptorDestroy": (c_void_p,),
    "cublasMpMatmulDescriptorCreate": (POINTER(c_void_p), c_int),
    "cublasMpMatmulDescriptorDestroy": (c_void_p,),
    "cublasMpMatmulDescriptorSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasMpMatmul_bufferSize": (*MATMUL, POINTER(c_size_t), POINTER(c_size_t)),
    "cublasMpMatmul": (*MATMUL, c_void_p, c_size_t, c_void_p, c_size_t),
}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


NCCL_SIGNATURES = {
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRank": (POINTER(c_void_p), c_int, UniqueId, c_int),
    "ncclCommFinalize": (c_void_p,),
    "ncclCommDestroy": (c_void_p,),
}


class StatusError(RuntimeError):
    """A function did not return success."""


def loaded(path: str, signatures: dict[str, tuple[Any, ...]], words_of: str) -> ctypes.CDLL:
    """A library whose functions check their status. `words_of` is the one that describes it."""
    library = ctypes.CDLL(path)
    describe = getattr(library, words_of)
    describe.restype = ctypes.c_char_p

    def checked(status: int, function: Any, _: object) -> None:
        if status:
            raise StatusError(f"{function.__name__}: status {status}, {describe(status).decode()}")

    for name, types in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype, function.errcheck = types, c_int, checked
    return library


def library_path() -> str:
    """In the package where that is installed, else where the loader finds it."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(PACKAGE) or []:
            if file.name == LIBRARY:
                return str(file.locate())
    return LIBRARY


if tuple(map(int, nccl_version().split("."))) < LEAST_NCCL:
    raise RuntimeError(f"NCCL {nccl_version()}: must be {'.'.join(map(str, LEAST_NCCL))} or newer")
nccl = loaded("libnccl.so.2", NCCL_SIGNATURES, "ncclGetErrorString")
mp = loaded(library_path(), SIGNATURES, "cublasMpGetStatusString")


class Session:
    """What all products share: a communicator of all ranks, its two grids and the handle. Collective."""

    def __init__(self, world: World) -> None:
        unique_id = UniqueId()
        if world.rank == 0:
            nccl.ncclGetUniqueId(byref(unique_id))
        shared = [bytes(unique_id)]
        dist.broadcast_object_list(shared, src=0, device=world.device)
        self._communicator, self.handle = c_void_p(), c_void_p()
        unique_id = UniqueId.from_buffer_copy(shared[0])
        nccl.ncclCommInitRank(byref(self._communicator), world.ranks, unique_id, world.rank)
        self._stream = torch.cuda.current_stream().cuda_stream
        mp.cublasMpCreate(byref(self.handle), self._stream)
        self.tall, self.wide = c_void_p(), c_void_p()  # ranks hold blocks of rows, or blocks of columns
        mp.cublasMpGridCreate(world.ranks, 1, TALL, self._communicator, byref(self.tall))
        mp.cublasMpGridCreate(1, world.ranks, WIDE, self._communicator, byref(self.wide))

    def use_current_stream(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        if stream != self._stream:
            mp.cublasMpSetStream(self.handle, stream)
            self._stream = stream

    def close(self) -> None:
        mp.cublasMpGridDestroy(self.tall)
        mp.cublasMpGridDestroy(self.wide)
        mp.cublasMpDestroy(self.handle)
        nccl.ncclCommFinalize(self._communicator)
        nccl.ncclCommDestroy(self._communicator)


@functools.cache
def made_session(world: World) -> Session | Failed:
    try:
        made = world.attempt(lambda: Session(world))
    except Failed as failed:
        return failed
    atexit.register(made.close)
    return made


def session(world: World) -> Session:
    """Kept until the process ends, as it takes longer to make than a shape to measure. Where a rank cannot
    make it, no rank has it."""
    made = made_session(world)
    if isinstance(made, Failed):
        raise made
    return made


class Memory:
    """As PyTorch takes it. This interface has no bf16, but integers of two bytes."""

    def __init__(self, address: int | None, rows: int, cols: int) -> None:
        fields = {"shape": (rows, cols), "typestr": "<i2", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = fields


class Way(NamedTuple):
    """To compute a product: an algorithm, and the type in which ranks add."""

    name: str
    descriptor: c_void_p
    device_bytes: int
    host_bytes: int


class Product:
    """Of a case. A call computes the result of a set of operands on PyTorch's current stream, in the way that
    took the least time. Collective.

    All memory is registered: else the library would not overlap, and say nothing.
    """

    def __init__(self, case: Case, op: str) -> None:
        self._case, self._session = case, session(case.world)
        self._session.use_current_stream()
        self._made = contextlib.ExitStack()
        refused: list[str] = []
        try:
            case.world.attempt(lambda: self._prepare(op, refused))
            self.way = self._fastest(refused)
        except BaseException:
            self._made.close()
            raise
        self._calls = self._arguments(self.way)

    def _prepare(self, op: str, refused: list[str]) -> None:
        """Memory, and the ways that this rank can compute in."""
        self._describe(op)
        self._operands = [[self._allocated(*x.shape).copy_(x) for x in pair] for pair in self._case.operands]
        rows = self._case.shard if op == "gemm_reduce_scatter" else self._case.m
        self._result = self._allocated(rows, self._case.n)
        self._all_ways = self._ways(op, refused)
        device_bytes = max([way.device_bytes for way in self._all_ways], default=0)
        host_bytes = max([way.host_bytes for way in self._all_ways], default=0)
        self._workspace = self._allocated(1, device_bytes // 2 + 1)
        self._host = ctypes.create_string_buffer(host_bytes + 1)

    def _fastest(self, refused: list[str]) -> Way:
        """Of those that all ranks can compute in."""
        names: list[list[str]] = [[] for _ in range(self._case.world.ranks)]
        dist.all_gather_object(names, [way.name for way in self._all_ways])
        times: list[tuple[float, Way]] = []
        for way in self._all_ways:
            if not all(way.name in each for each in names):
                continue
            try:
                times.append((self._time_us(way), way))
            except Failed as failed:
                refused.append(f"{way.name}: {failed}")
        if not times:
            raise RuntimeError("; ".join(refused) or "other ranks refuse what this one does not")
        return min(times, key=lambda each: each[0])[1]

    def _describe(self, op: str) -> None:
        """Extents of all ranks together, and the descriptors of both operands and of the result."""
        m, n, k, ranks = self._case.m, self._case.n, self._case.k, self._case.world.ranks
        tall, wide, columns = self._session.tall, self._session.wide, self._case.shard
        if op == "all_gather_gemm":
            self._extents, self._grid = (n * ranks, m, k), tall
            self._weight = self._matrix(k, n * ranks, k, n, wide)
            self._a = self._matrix(k, m, k, columns, wide)
            self._d = self._matrix(n * ranks, m, n, columns, tall)
            return
        all_columns = m
        if op == "gemm_all_reduce":
            columns, all_columns = m, m * ranks  # of results that are all the same
        self._extents, self._grid = (n, m, k * ranks), wide
        self._weight = self._matrix(k * ranks, n, k, n, tall)
        self._a = self._matrix(k * ranks, m, k, columns, tall)
        self._d = self._matrix(n, all_columns, n, columns, wide)

    def _matrix(self, rows: int, cols: int, height: int, width: int, grid: c_void_p) -> c_void_p:
        """In blocks of this height and width, of which each rank has one."""
        made = c_void_p()
        mp.cublasMpMatrixDescriptorCreate(rows, cols, height, width, 0, 0, height, BF16, grid, byref(made))
        self._made.callback(mp.cublasMpMatrixDescriptorDestroy, made)
        return made

    def _allocated(self, rows: int, cols: int) -> Tensor:
        address = c_void_p()
        mp.cublasMpMalloc(self._grid, byref(address), rows * cols * torch.bfloat16.itemsize)
        self._made.callback(mp.cublasMpFree, self._grid, address)
        memory = Memory(address.value, rows, cols)
        return torch.as_tensor(memory, device=self._case.world.device).view(torch.bfloat16)

    def _ways(self, op: str, refused: list[str]) -> list[Way]:
        """Those that are not refused at once. By default ranks send fp32 to be added; NCCL's send bf16."""
        fixed = {TRANSPOSE_A: TRANSPOSED, TRANSPOSE_B: NOT_TRANSPOSED}
        if op == "gemm_all_reduce":
            fixed[EPILOGUE] = EPILOGUE_ALL_REDUCE
        choices = {name: fixed | {ALGORITHM: number} for name, number in ALGORITHMS.items()}
        if op != "all_gather_gemm":
            choices |= {f"{name}, bf16": each | {COMMUNICATION_TYPE: BF16} for name, each in choices.items()}
        ways = []
        for name, attributes in choices.items():
            descriptor, device, host = c_void_p(), c_size_t(), c_size_t()
            mp.cublasMpMatmulDescriptorCreate(byref(descriptor), COMPUTE_FP32)
            self._made.callback(mp.cublasMpMatmulDescriptorDestroy, descriptor)
            try:
                for attribute, value in attributes.items():
                    mp.cublasMpMatmulDescriptorSetAttribute(descriptor, attribute, byref(c_int(value)), 4)
                mp.cublasMpMatmul_bufferSize(*self._product(descriptor, 0), byref(device), byref(host))
                ways.append(Way(name, descriptor, device.value, host.value))
            except StatusError as error:
                refused.append(f"{name}: {error}")
        return ways

    def _product(self, descriptor: c_void_p, index: int) -> tuple[Any, ...]:
        a, weight = (each.data_ptr() for each in self._operands[index])
        return (
            *(self._session.handle, descriptor, *self._extents),
            *(ONE, weight, 1, 1, self._weight, a, 1, 1, self._a),
            *(ZERO, None, 1, 1, None, self._result.data_ptr(), 1, 1, self._d),
        )

    def _arguments(self, way: Way) -> list[tuple[Any, ...]]:
        """Of the call for each set of operands."""
        workspace, host = self._workspace.data_ptr(), ctypes.addressof(self._host)
        memory = workspace, way.device_bytes, host, way.host_bytes
        return [(*self._product(way.descriptor, index), *memory) for index in range(self._case.sets)]

    def _time_us(self, way: Way) -> float:
        """Of all sets on the slowest rank, the least of a few. Raises Failed where a rank cannot."""
        world, calls = self._case.world, self._arguments(way)

        def launch() -> None:
            for each in calls:
                mp.cublasMpMatmul(*each)

        world.attempt(launch)
        return min(world.maxima([world.time_us(launch)])[0] for _ in range(TIMINGS))

    def __call__(self, index: int) -> Tensor:
        self._session.use_current_stream()
        mp.cublasMpMatmul(*self._calls[index])
        return self._result

    def close(self) -> None:
        """Frees the memory. No graph of it may be left."""
        torch.cuda.synchronize()
        dist.barrier()  # no rank reads what another frees
        self._made.close()
