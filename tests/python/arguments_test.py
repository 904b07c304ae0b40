"""Wrong arguments are refused in one line, which names the argument as the caller knows it, and the rule."""

import re
from ast import literal_eval

import numpy as np
import pytest

import flashoverlap
from flashoverlap import InvalidArgument, Machine, Operator, Problem, Schedule

SIZES = {"m": 8, "n": 8, "k": 16, "ranks": 2}
A, B = np.ones((8, 16), np.float32), np.ones((8, 16), np.float32)


def expect(error, message, function):
    """In one line, which begins like this."""
    with pytest.raises(error) as raised:
        function()
    assert str(raised.value).startswith(message), raised.value
    assert "\n" not in str(raised.value)


def expect_on_ranks(error, message, function):
    expect(error, message, lambda: flashoverlap.run_ranks(2, function, wait_limit=5))


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"m": 1.5}, TypeError, "m = 1.5: must be a whole number"),
        ({"m": None}, TypeError, "m = None: must be a whole number"),
        ({"m": 2**70}, TypeError, f"m = {2**70}: must be a whole number of at most 64 bits"),
        ({"m": 0}, InvalidArgument, "m = 0: must be between 1 and"),
        (
            {"ranks": np.ones((2, 2))},
            TypeError,
            "ranks = array([[1., 1.],        [1., 1.]]): must be a whole number",
        ),
        ({"data_type": "fp64"}, ValueError, 'data_type = "fp64": must be one of bf16, fp16, fp32'),
        (
            {"data_type": np.float32},
            TypeError,
            "data_type = <class 'numpy.float32'>: must be one of bf16, fp16, fp32",
        ),
        ({"exchange": None}, TypeError, "exchange = None: must be one of rows, heads"),
        (
            {"destinations": [0, 1]},
            TypeError,
            "destinations = [0, 1]: must be a list of whole numbers for each rank",
        ),
        ({"rank": 2}, TypeError, "rank: must be one of operation, m, n, k, ranks, data_type"),
        ({"operation": "gemm"}, TypeError, "operation: must be given once"),
    ],
)
def test_a_problem_names_the_argument_that_is_wrong(changes, error, message):
    expect(error, message, lambda: Problem("gemm_all_to_all", **{**SIZES, **changes}))


def test_a_problem_takes_sizes_by_name_and_says_how():
    usage = 'as in Problem("gemm_all_reduce", m='
    with pytest.raises(TypeError, match=re.escape(usage)):
        Problem("gemm_all_reduce", 8, 8, 16, 2)
    expect(
        TypeError,
        "5 arguments are given without their names",
        lambda: Problem("gemm_all_reduce", 8, 8, 16, 2),
    )
    expect(TypeError, f"k: must be given, {usage}", lambda: Problem("gemm_all_reduce", m=8, n=8, ranks=2))
    expect(TypeError, f"operation: must be given, {usage}", lambda: Problem(**SIZES))
    expect(
        ValueError, 'operation = "gemm": must be one of gemm_all_reduce,', lambda: Problem("gemm", **SIZES)
    )
    assert Problem(operation="gemm_all_reduce", **SIZES) == Problem("gemm_all_reduce", **SIZES)


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        (["sig"], {}, ValueError, 'strategy = "sig": must be one of sequential, signal'),
        (["signal", 128], {}, TypeError, "2 arguments are given without their names"),
        (["signal"], {"tile_rows": 1.5}, TypeError, "tile_rows = 1.5: must be a whole number"),
        (["signal"], {"share_k": 1}, TypeError, "share_k = 1: must be True or False"),
        (["signal"], {"groups": [1, "a"]}, TypeError, "groups = [1, 'a']: must be a list of whole numbers"),
        (["signal"], {"waves": 1}, TypeError, "waves: must be one of strategy, layout, tile_rows"),
    ],
)
def test_a_schedule_names_the_argument_that_is_wrong(arguments, options, error, message):
    expect(error, message, lambda: Schedule(*arguments, **options))


def test_what_is_not_given_is_what_the_signature_says():
    for kind, given in (
        (Problem, {"operation": "gemm_all_reduce", **SIZES}),
        (Schedule, {"strategy": "signal"}),
    ):
        (signature,) = re.findall(r"\*, (.*)\) -> None", kind.__init__.__doc__)
        defaults = dict(re.findall(r"(\w+): [^=,]+ = ('\w+'|\w+|\[\])", signature))
        assert len(defaults) >= 9
        assert kind(**given, **{name: literal_eval(value) for name, value in defaults.items()}) == kind(
            **given
        )


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"strategies": "signal"}, TypeError, 'strategies = "signal": must be a list of names'),
        ({"strategies": 3}, TypeError, "strategies = 3: must be a list of names"),
        (
            {"strategies": ["signal", "singal"]},
            ValueError,
            'strategies[1] = "singal": must be one of sequential',
        ),
        ({"layouts": "natural"}, TypeError, 'layouts = "natural": must be a list of names'),
        ({"reader": "norms"}, ValueError, 'reader = "norms": must be one of caller, norm'),
    ],
)
def test_a_search_names_the_argument_that_is_wrong(options, error, message):
    problem = Problem("gemm_all_reduce", **SIZES)
    expect(error, message, lambda: flashoverlap.search(problem, Machine.preset("h200-nvlink"), **options))


@pytest.mark.parametrize(
    "a, b, error, message",
    [
        (A[0], B, ValueError, "a: must have 2 dimensions, not 1"),
        (A, B[None], ValueError, "b: must have 2 dimensions, not 3"),
        (A.astype(np.int32), B, TypeError, "data type of a = int32: must be bfloat16, float16 or float32"),
        (A, B.astype(float), TypeError, "data type of b = float64: must be bfloat16, float16 or float32"),
        (A > 0, B, TypeError, "data type of a = bool: must be"),
        (A.astype(complex), B, TypeError, "data type of a = complex128: must be"),
        (A.astype(">f4"), B, TypeError, "a: DLPack only supports native byte order"),
        (
            None,
            B,
            TypeError,
            "a: must be a matrix that speaks DLPack, as of NumPy, PyTorch or CuPy, not NoneType",
        ),
        (
            A,
            A.tolist(),
            TypeError,
            "b: must be a matrix that speaks DLPack, as of NumPy, PyTorch or CuPy, not list",
        ),
    ],
)
def test_what_is_no_operand_is_named(a, b, error, message):
    expect_on_ranks(error, message, lambda communicator: flashoverlap.gemm_all_reduce(a, b, communicator))
    problem = Problem("gemm_all_reduce", **SIZES, data_type="fp32")
    with pytest.raises(error, match=re.escape(message)):
        flashoverlap.run_ranks(2, lambda communicator: Operator(problem, communicator).run(a, b))


@pytest.mark.parametrize("value, error", [(None, TypeError), (3, TypeError), ("columns", ValueError)])
def test_an_exchange_and_what_is_gathered_are_named(value, error):
    shown = '"columns"' if value == "columns" else value
    for operation, name, names in (
        (flashoverlap.gemm_all_to_all, "exchange", "rows, heads"),
        (flashoverlap.all_gather_gemm, "gathered", "a, b"),
    ):
        expect_on_ranks(
            error,
            f"{name} = {shown}: must be one of {names}",
            lambda communicator: operation(A, B, communicator, **{name: value}),
        )


@pytest.mark.parametrize("communicator", [None, "nccl"])
def test_what_is_no_communicator_is_named(communicator):
    message = f"communicator = {communicator!r}: must be a Communicator, or a HostCommunicator"
    expect(TypeError, message, lambda: flashoverlap.gemm_all_reduce(A, B, communicator))
    expect(
        TypeError,
        message,
        lambda: flashoverlap.gemm_all_reduce(A, B, communicator, np.empty((8, 8), np.float32)),
    )
    expect(TypeError, message, lambda: Operator(Problem("gemm_all_reduce", **SIZES), communicator))


def test_what_is_no_problem_is_named():
    expect_on_ranks(
        TypeError, "problem = None: must be a Problem", lambda communicator: Operator(None, communicator)
    )


class TestOperands:
    """Of an operator, on all ranks: the message says which rank's."""

    problem = Problem("gemm_all_reduce", **SIZES, data_type="fp32")

    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize(
        "name, wrong, error, message",
        [
            ("a", np.ones((8, 17), np.float32), InvalidArgument, "shape of a = (8, 17): must be (8, 16)"),
            ("b", np.ones((9, 16), np.float32), InvalidArgument, "shape of b = (9, 16): must be (8, 16)"),
            ("a", np.ones((8, 16), np.float16), InvalidArgument, "data type of a = fp16: must be fp32"),
            ("b", np.ones(8, np.float32), ValueError, "b: must have 2 dimensions, not 1"),
            ("b", None, TypeError, "b: must be a matrix that speaks DLPack"),
            ("out", np.ones((8, 9), np.float32), InvalidArgument, "shape of out = (8, 9): must be (8, 8)"),
        ],
    )
    def test_are_named_with_their_rank(self, rank, name, wrong, error, message):
        seen = []

        def on_rank(communicator):
            operator = Operator(self.problem, communicator)
            given = {"a": A, "b": B, "out": np.empty((8, 8), np.float32)}
            if communicator.rank == rank:
                given[name] = wrong
            try:
                operator.run(**given)
            except Exception as raised:
                seen.append(raised)

        flashoverlap.run_ranks(2, on_rank)
        assert len(seen) == 2
        for raised in seen:
            assert isinstance(raised, error)
            assert str(raised).startswith(f"rank {rank}: {message}")

    def test_are_refused_before_a_result_that_nobody_has_given(self):
        problem = Problem("gemm_all_reduce", **SIZES)
        expect_on_ranks(
            InvalidArgument,
            "rank 0: data type of a = fp32: must be bf16",
            lambda communicator: Operator(problem, communicator).run(A, B),
        )


@pytest.mark.parametrize(
    "color, error",
    [
        (-1, InvalidArgument),
        (2**31, InvalidArgument),
        ("a", TypeError),
        (1.5, TypeError),
        (None, TypeError),
        ([0], TypeError),
    ],
)
def test_a_color_is_a_whole_number_of_0_or_more_on_every_rank(color, error):
    seen = []

    def on_rank(communicator):
        with pytest.raises(error) as raised:
            communicator.split(color if communicator.rank == 1 else 0)
        seen.append(str(raised.value))
        group = communicator.split(np.int64(communicator.rank))  # and the communicator can go on
        assert (group.rank, group.ranks) == (0, 1)

    flashoverlap.run_ranks(2, on_rank, wait_limit=5)
    assert seen == [f"color of rank 1 = {color!r}: must be a whole number from 0 to {2**31 - 1}"] * 2
