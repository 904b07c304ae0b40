"""What is wrong inside a sequence raises, as what is wrong by itself does: it must not end the process."""

import numpy as np
import pytest

import flashoverlap
from flashoverlap import InvalidArgument, Machine, Operator, Problem

PROBLEM = Problem("gemm_all_reduce", m=8, n=8, k=8, ranks=2, data_type="fp32")
ONES = np.ones((8, 8), np.float32)


@pytest.mark.parametrize(
    "out, error, text",
    [
        (np.zeros((8, 8)), TypeError, "data type of out = float64: must be bfloat16, float16 or float32"),
        (np.zeros((8, 8), int), TypeError, "data type of out = int64: must be bfloat16, float16 or float32"),
        (np.zeros((8, 8, 1), np.float32), ValueError, "out: must have 2 dimensions, not 3"),
        (np.broadcast_to(np.zeros(8, np.float32), (8, 8)), InvalidArgument, r"strides of out = \(0, 1\)"),
        ("text", TypeError, "out: must be a matrix that speaks DLPack"),
    ],
)
def test_results_of_ranks_that_are_wrong_raise(out, error, text) -> None:
    with pytest.raises(error, match=text):
        flashoverlap.run_ranks(2, lambda communicator: Operator(PROBLEM, communicator).run(ONES, ONES, out))


def test_a_result_whose_rows_overlap_is_refused() -> None:
    memory = np.zeros(64, np.float32)
    overlapping = np.lib.stride_tricks.as_strided(memory, (8, 8), (4, 4))
    with pytest.raises(InvalidArgument, match=r"strides of out = \(1, 1\)"):
        flashoverlap.run_ranks(2, lambda communicator: Operator(PROBLEM, communicator).run(ONES, ONES, overlapping))
    assert not memory.any()


@pytest.mark.parametrize("operands", [(ONES, None), (None, ONES), (ONES[0], ONES), (ONES, "text")])
def test_operands_of_ranks_that_are_wrong_raise(operands) -> None:
    with pytest.raises((TypeError, ValueError)):
        flashoverlap.run_ranks(2, lambda communicator: Operator(PROBLEM, communicator).run(*operands))


@pytest.mark.parametrize(
    "names, error, text",
    [
        ({"strategies": ["singal"]}, ValueError, '"singal": must be one of sequential, signal'),
        ({"layouts": ["nat"]}, ValueError, '"nat": must be one of natural, tiled'),
        ({"strategies": [3]}, TypeError, r"strategies\[0\] = 3: must be one of sequential, signal"),
        ({"strategies": []}, InvalidArgument, "strategies = none"),
    ],
)
def test_names_of_a_search_that_are_wrong_raise(names, error, text) -> None:
    with pytest.raises(error, match=text):
        flashoverlap.search(PROBLEM, Machine.preset("h200-nvlink"), **names)


def test_a_search_takes_any_sequence_of_names() -> None:
    machine = Machine.preset("h200-nvlink")
    found = flashoverlap.search(PROBLEM, machine, ("copy",), layouts=("natural",))
    assert {candidate.schedule.strategy for candidate in found} == {"copy"}
