"""The five operations on NumPy arrays, against fp64 products of NumPy."""

import time

import numpy as np
import pytest

import flashoverlap

RANKS = [1, 2, 3, 4]
M, N, K = 240, 192, 96  # of each rank; all ranks above divide them


def matrices(generator, ranks, rows, cols, row_contiguous=False, dtype=np.float32):
    """One for each rank, [rows, cols]."""
    if row_contiguous:
        return [each.T for each in matrices(generator, ranks, cols, rows, dtype=dtype)]
    return [generator.uniform(-1, 1, (rows, cols)).astype(dtype) for _ in range(ranks)]


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def parts(matrix, ranks, axis=0):
    return np.split(matrix, ranks, axis)


def run(operation, a, b, **options):
    """The result of each rank, in memory that was NaN."""

    def on_rank(communicator):
        own_a, own_b = a[communicator.rank], b[communicator.rank]
        first = operation(own_a, own_b, communicator, **options)
        poisoned = np.full(first.shape, np.nan, first.dtype)
        again = operation(own_a, own_b, communicator, poisoned, **options)
        assert again is poisoned
        np.testing.assert_array_equal(again, first)
        assert len(communicator.operators) == 1
        return again

    return flashoverlap.run_ranks(len(a), on_rank)


def expect_close(results, expected, tolerance=1e-5):
    for result, reference in zip(results, expected, strict=True):
        assert result.shape == reference.shape
        assert np.linalg.norm(result - reference) <= tolerance * np.linalg.norm(reference)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("a_rows_contiguous", [False, True])
@pytest.mark.parametrize("b_rows_contiguous", [False, True])
class TestEachLayout:
    def operands(self, generator, ranks, a_rows_contiguous, b_rows_contiguous):
        return (
            matrices(generator, ranks, M, K, a_rows_contiguous),
            matrices(generator, ranks, N, K, b_rows_contiguous),
        )

    def test_gemm_all_reduce_adds_the_products(self, generator, ranks, a_rows_contiguous, b_rows_contiguous):
        a, b = self.operands(generator, ranks, a_rows_contiguous, b_rows_contiguous)
        total = sum(map(product, a, b))
        expect_close(run(flashoverlap.gemm_all_reduce, a, b), [total] * ranks)

    def test_gemm_reduce_scatter_leaves_each_rank_its_rows(
        self, generator, ranks, a_rows_contiguous, b_rows_contiguous
    ):
        a, b = self.operands(generator, ranks, a_rows_contiguous, b_rows_contiguous)
        total = sum(map(product, a, b))
        expect_close(run(flashoverlap.gemm_reduce_scatter, a, b), parts(total, ranks))

    def test_gemm_all_to_all_sends_columns(self, generator, ranks, a_rows_contiguous, b_rows_contiguous):
        a, b = self.operands(generator, ranks, a_rows_contiguous, b_rows_contiguous)
        columns = [parts(product(*each), ranks, 1) for each in zip(a, b)]
        expect_close(run(flashoverlap.gemm_all_to_all, a, b), [np.concatenate(each) for each in zip(*columns)])

    def test_all_gather_gemm_gathers_a_by_rows_or_along_k(
        self, generator, ranks, a_rows_contiguous, b_rows_contiguous
    ):
        _, b = self.operands(generator, ranks, False, b_rows_contiguous)
        if a_rows_contiguous:
            a = matrices(generator, ranks, M, K // ranks, True)
            whole = np.concatenate(a, 1)
        else:
            a = matrices(generator, ranks, M // ranks, K)
            whole = np.concatenate(a)
        expect_close(run(flashoverlap.all_gather_gemm, a, b), [product(whole, each) for each in b])

    def test_all_gather_gemm_gathers_b_by_rows_or_along_k(
        self, generator, ranks, a_rows_contiguous, b_rows_contiguous
    ):
        a, _ = self.operands(generator, ranks, a_rows_contiguous, False)
        if b_rows_contiguous:
            b = matrices(generator, ranks, N, K // ranks, True)
            whole = np.concatenate(b, 1)
        else:
            b = matrices(generator, ranks, N // ranks, K)
            whole = np.concatenate(b)
        expect_close(
            run(flashoverlap.all_gather_gemm, a, b, gathered="b"), [product(each, whole) for each in a]
        )


@pytest.mark.parametrize("ranks", RANKS)
def test_all_to_all_gemm_brings_columns_back(generator, ranks):
    a = matrices(generator, ranks, ranks * M, K // ranks)
    b = matrices(generator, ranks, N, K)
    received = [np.concatenate([parts(each, ranks)[rank] for each in a], 1) for rank in range(ranks)]
    expect_close(run(flashoverlap.all_to_all_gemm, a, b), map(product, received, b))


@pytest.mark.parametrize("ranks", RANKS)
def test_all_to_alls_exchange_equal_parts_of_rows(generator, ranks):
    a = matrices(generator, ranks, M, K)
    b = matrices(generator, ranks, N, K)
    products = [parts(product(*each), ranks) for each in zip(a, b)]
    expect_close(
        run(flashoverlap.gemm_all_to_all, a, b, exchange="rows"), [np.concatenate(each) for each in zip(*products)]
    )
    received = [np.concatenate(each) for each in zip(*(parts(each, ranks) for each in a))]
    expect_close(run(flashoverlap.all_to_all_gemm, a, b, exchange="rows"), map(product, received, b))


def test_data_types_are_those_of_the_operands(generator):
    a = matrices(generator, 2, M, K, dtype=np.float16)
    b = matrices(generator, 2, N, K, dtype=np.float16)
    results = run(flashoverlap.gemm_all_reduce, a, b)
    assert results[0].dtype == np.float16
    expect_close(results, [sum(map(product, a, b))] * 2, 2e-3)


def test_a_slice_of_a_wider_matrix_is_an_operand(generator):
    wide = matrices(generator, 2, M, K + 40)
    b = matrices(generator, 2, N, K)
    a = [each[:, 8 : 8 + K] for each in wide]
    expect_close(run(flashoverlap.gemm_all_reduce, a, b), [sum(map(product, a, b))] * 2)


def test_an_operator_takes_a_schedule(generator):
    a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
    problem = flashoverlap.Problem("gemm_reduce_scatter", m=M, n=N, k=K, ranks=2, data_type="fp32")
    schedule = flashoverlap.Schedule("store", tile_rows=32, tile_cols=64, multiprocessors=4)

    def on_rank(communicator):
        operator = flashoverlap.Operator(problem, communicator, schedule)
        assert operator.schedule == schedule
        return operator.run(a[communicator.rank], b[communicator.rank])

    expect_close(flashoverlap.run_ranks(2, on_rank), parts(sum(map(product, a, b)), 2))


def test_operators_that_have_not_run_for_the_longest_time_are_closed(generator, monkeypatch):
    monkeypatch.setattr(flashoverlap.operations, "most_operators", 3)
    ranks, sizes = 2, [8, 16, 24, 8, 32, 8, 40, 16]
    a = {m: matrices(generator, ranks, m, K) for m in set(sizes)}
    b = matrices(generator, ranks, N, K)

    def on_rank(communicator):
        rank, results = communicator.rank, []
        for m in sizes:
            results.append(flashoverlap.gemm_all_reduce(a[m][rank], b[rank], communicator))
            assert len(communicator.operators) <= 3
        return results, [operator.problem.m for operator in communicator.operators.values()]

    for results, kept in flashoverlap.run_ranks(ranks, on_rank):
        assert kept == [8, 40, 16]
        expect_close(results, [sum(product(*each) for each in zip(a[m], b)) for m in sizes])


def test_an_operator_that_was_closed_says_so(generator):
    problem = flashoverlap.Problem("gemm_all_reduce", m=8, n=N, k=K, ranks=2, data_type="fp32")
    a, b = matrices(generator, 2, 8, K), matrices(generator, 2, N, K)

    def on_rank(communicator):
        operator = flashoverlap.Operator(problem, communicator)
        operator.run(a[communicator.rank], b[communicator.rank])
        operator.close()
        operator.close()
        assert repr(operator).endswith("closed>")
        with pytest.raises(flashoverlap.CommunicationError, match="run: the operator is closed"):
            operator.run(a[communicator.rank], b[communicator.rank])

    flashoverlap.run_ranks(2, on_rank)


def test_the_promise_that_b_is_constant_has_operators_of_its_own(generator):
    a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
    expect_close(run(flashoverlap.gemm_all_reduce, a, b, b_is_constant=True), [sum(map(product, a, b))] * 2)

    def on_rank(communicator):
        for promised in (False, True, True, False):
            flashoverlap.gemm_all_reduce(
                a[communicator.rank], b[communicator.rank], communicator, b_is_constant=promised
            )
        return len(communicator.operators)

    assert flashoverlap.run_ranks(2, on_rank) == [2, 2]


def test_sub_groups_compute_by_themselves(generator):
    a, b = matrices(generator, 4, M, K), matrices(generator, 4, N, K)

    def on_rank(communicator):
        group = communicator.split(communicator.rank % 2)
        assert (group.rank, group.ranks) == (communicator.rank // 2, 2)
        return flashoverlap.gemm_all_reduce(a[communicator.rank], b[communicator.rank], group)

    sums = [product(a[of], b[of]) + product(a[of + 2], b[of + 2]) for of in (0, 1)]
    expect_close(flashoverlap.run_ranks(4, on_rank), [sums[rank % 2] for rank in range(4)])


def test_strides_of_a_single_row_or_column_make_no_new_operators(generator):
    b = matrices(generator, 2, N, K)
    wide = [generator.uniform(-1, 1, (4, each, K)).astype(np.float32) for each in (1, 2, 3)]

    def on_rank(communicator):
        for rows in wide:
            flashoverlap.gemm_all_reduce(rows.reshape(1, -1)[:, -K:], b[communicator.rank], communicator)
        return len(communicator.operators)

    assert flashoverlap.run_ranks(2, on_rank) == [1, 1]


@pytest.mark.parametrize("gathered", ["a", "b"])
def test_one_row_of_each_rank_is_gathered_along_k(generator, gathered):
    """As in weight gradients of a single token: a column, of which the strides do not say how it lies."""
    whole, other = (matrices(generator, 1, each, 2, row_contiguous=True)[0] for each in (M, N))
    own = [whole[:, rank : rank + 1] for rank in range(2)]
    operands = (own, [other] * 2) if gathered == "a" else ([other] * 2, own)
    expected = product(whole, other) if gathered == "a" else product(other, whole)
    expect_close(run(flashoverlap.all_gather_gemm, *operands, gathered=gathered), [expected] * 2)


@pytest.mark.parametrize(
    "schedule",
    [
        flashoverlap.Schedule("signal", layout="tiled", tile_rows=32, tile_cols=64, multiprocessors=3),
        flashoverlap.Schedule("store", layout="partial", tile_rows=32, tile_cols=64, multiprocessors=3, shots=1),
    ],
    ids=lambda schedule: schedule.layout,
)
def test_a_result_in_its_own_order_is_read_and_normalised(generator, schedule):
    a, b = matrices(generator, 2, 200, K), matrices(generator, 2, 72, K)
    weight, residual = matrices(generator, 1, 1, 72)[0][0], matrices(generator, 1, 200, 72)[0]
    problem = flashoverlap.Problem("gemm_all_reduce", m=200, n=72, k=K, ranks=2, data_type="fp32")

    def on_rank(communicator):
        operator = flashoverlap.Operator(problem, communicator, schedule)
        result = operator.run(a[communicator.rank], b[communicator.rank])
        assert result.shape != (200, 72)
        with pytest.raises(flashoverlap.InvalidArgument, match="shape of weight"):
            operator.rms_norm(result, weight[:-1])
        with pytest.raises(flashoverlap.InvalidArgument, match="shape of residual"):
            operator.rms_norm(result, weight, residual[:-1])
        with pytest.raises(flashoverlap.InvalidArgument, match="epsilon"):
            operator.rms_norm(result, weight, epsilon=-1)
        with pytest.raises(flashoverlap.InvalidArgument, match="shape of result"):
            operator.natural(residual)
        return operator.natural(result), operator.rms_norm(result, weight), operator.rms_norm(result, weight, residual)

    def expected_norm(x):
        return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * weight

    total = sum(map(product, a, b))
    for natural, alone, added in flashoverlap.run_ranks(2, on_rank):
        expect_close([natural], [total])
        expect_close(alone, [expected_norm(total), total])
        expect_close(added, [expected_norm(total + residual), total + residual])


def test_all_names_of_the_package_are_there_without_cuda():
    imported = {}
    exec("from flashoverlap import *", imported)
    assert set(flashoverlap.__all__) <= set(imported)


class TestErrors:
    """Each names what is wrong, on every rank, and nobody waits for ever."""

    def expect(self, error, message, a, b, operation=flashoverlap.gemm_all_reduce, **options):
        seen = []

        def on_rank(communicator):
            try:
                return operation(a[communicator.rank], b[communicator.rank], communicator, **options)
            except Exception as raised:
                seen.append(raised)

        flashoverlap.run_ranks(len(a), on_rank, wait_limit=5)
        assert len(seen) == len(a)
        for raised in seen:
            assert isinstance(raised, error), raised
            assert message in str(raised)

    def test_shapes_that_do_not_fit(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K + 8)
        self.expect(flashoverlap.InvalidArgument, f"columns of b = {K + 8}: must be {K}", a, b)

    def test_rows_that_the_ranks_do_not_divide(self, generator):
        a, b = matrices(generator, 2, M + 1, K), matrices(generator, 2, N, K)
        self.expect(flashoverlap.InvalidArgument, f"m = {M + 1}", a, b, flashoverlap.gemm_reduce_scatter)

    def test_data_types_that_differ(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K, dtype=np.float16)
        self.expect(flashoverlap.InvalidArgument, "data type of b = fp16: must be that of a, fp32", a, b)

    def test_data_types_that_are_not_computed(self, generator):
        a, b = matrices(generator, 2, M, K, dtype=np.int32), matrices(generator, 2, N, K, dtype=np.int32)
        self.expect(TypeError, "data type of a = int32: must be bfloat16, float16 or float32", a, b)

    def test_more_than_two_dimensions(self, generator):
        a = [np.zeros((2, M, K), np.float32)] * 2
        self.expect(ValueError, "a: must have 2 dimensions, not 3", a, matrices(generator, 2, N, K))

    def test_what_is_no_matrix(self, generator):
        b = matrices(generator, 2, N, K)
        self.expect(TypeError, "a: must be a matrix that speaks DLPack", ["a", "b"], b)

    def test_strides_that_are_not_contiguous(self, generator):
        a = [each[:, ::2] for each in matrices(generator, 2, M, 2 * K)]
        self.expect(flashoverlap.InvalidArgument, "strides of a", a, matrices(generator, 2, N, K))

    def test_an_out_of_another_shape(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
        out = np.zeros((M, N + 8), np.float32)
        self.expect(flashoverlap.InvalidArgument, f"shape of out = ({M}, {N + 8}): must be ({M}, {N})", a, b, out=out)

    def test_an_out_that_cannot_be_written(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
        out = np.zeros((M, N), np.float32)
        out.flags.writeable = False
        self.expect(flashoverlap.InvalidArgument, "must be one that can be written", a, b, out=out)

    def test_operands_that_cannot_be_written_are_fine(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
        for each in a + b:
            each.flags.writeable = False
        expect_close(run(flashoverlap.gemm_all_reduce, a, b), [sum(map(product, a, b))] * 2)

    def test_an_unknown_exchange(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)
        self.expect(
            ValueError,
            'exchange = "columns": must be one of rows, heads',
            a,
            b,
            flashoverlap.gemm_all_to_all,
            exchange="columns",
        )

    def test_ranks_that_disagree(self, generator):
        a = [matrices(generator, 1, M + rank, K)[0] for rank in range(2)]
        self.expect(flashoverlap.InvalidArgument, "problem of rank 1", a, matrices(generator, 2, N, K))

    @pytest.mark.parametrize("of_rank_1", [{"multiprocessors": 8}, None])
    def test_ranks_whose_schedules_differ(self, of_rank_1):
        problem = flashoverlap.Problem("gemm_reduce_scatter", m=M, n=N, k=K, ranks=2, data_type="fp32")
        sizes = {"tile_rows": 32, "tile_cols": 64, "multiprocessors": 4}
        first = flashoverlap.Schedule("store", **sizes)
        second = of_rank_1 and flashoverlap.Schedule("store", **{**sizes, **of_rank_1})

        def on_rank(communicator):
            with pytest.raises(flashoverlap.InvalidArgument) as raised:
                flashoverlap.Operator(problem, communicator, second if communicator.rank else first)
            return str(raised.value)

        message = f"schedule of rank 1 = {second!r}: must be that of rank 0, {first!r}"
        assert flashoverlap.run_ranks(2, on_rank) == [message] * 2

    @pytest.mark.parametrize("ranks", [0, -1])
    def test_no_ranks(self, ranks):
        with pytest.raises(flashoverlap.InvalidArgument, match=f"ranks = {ranks}: must be at least 1"):
            flashoverlap.run_ranks(ranks, lambda communicator: None)

    @pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e12, 86401, 0, -1])
    def test_a_wait_limit_that_no_clock_counts(self, seconds):
        with pytest.raises(flashoverlap.InvalidArgument, match="wait_limit = .* s: must be more than 0 s"):
            flashoverlap.run_ranks(1, lambda communicator: None, wait_limit=seconds)

    def test_a_rank_that_raises_ends_the_others(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)

        def on_rank(communicator):
            if communicator.rank == 1:
                raise KeyError("lost")
            flashoverlap.gemm_all_reduce(a[0], b[0], communicator)

        with pytest.raises(KeyError, match="lost"):
            flashoverlap.run_ranks(2, on_rank)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    @pytest.mark.parametrize("lost", [0, 1])
    def test_no_error_of_a_rank_is_lost(self, error, lost):
        def on_rank(communicator):
            if communicator.rank == lost:
                raise error
            communicator.gather(0)

        with pytest.raises(error):
            flashoverlap.run_ranks(2, on_rank)

    def test_a_rank_that_raises_ends_groups_of_groups(self):
        def on_rank(communicator):
            group = communicator.split(0).split(0)
            group.gather(0)
            if communicator.rank == 1:
                time.sleep(0.2)
                raise KeyError("lost")
            group.gather(0)

        begun = time.monotonic()
        with pytest.raises(KeyError, match="lost"):
            flashoverlap.run_ranks(2, on_rank)
        assert time.monotonic() - begun < 10

    def test_ranks_that_call_something_else(self, generator):
        a, b = matrices(generator, 1, M, K)[0], matrices(generator, 1, N, K)[0]

        def on_rank(communicator):
            with pytest.raises(flashoverlap.CommunicationError, match="rank 1 calls gather where rank 0 calls a new op"):
                communicator.gather(0) if communicator.rank else flashoverlap.gemm_all_reduce(a, b, communicator)

        flashoverlap.run_ranks(2, on_rank)

    def test_a_rank_that_a_problem_does_not_have(self):
        problem = flashoverlap.Problem("gemm_all_to_all", m=4, n=8, k=8, ranks=2, destinations=[[0, 1, 0, 1]] * 2)
        for shape in (problem.a_shape, problem.b_shape, problem.out_shape):
            with pytest.raises(flashoverlap.InvalidArgument, match="rank = 2: must be 0 to 1"):
                shape(2)

    def test_a_rank_that_does_not_come_is_not_awaited_for_ever(self, generator):
        a, b = matrices(generator, 2, M, K), matrices(generator, 2, N, K)

        def on_rank(communicator):
            if communicator.rank == 0:
                flashoverlap.gemm_all_reduce(a[0], b[0], communicator)

        with pytest.raises(flashoverlap.CommunicationError, match="not all ranks came within 0.2 s"):
            flashoverlap.run_ranks(2, on_rank, wait_limit=0.2)


def test_schedules_are_shown_in_full_and_hash_by_their_values():
    def schedule(**changes):
        sizes = {"tile_rows": 32, "tile_cols": 64, "multiprocessors": 8, "raster": 4, "groups": [1, 2]}
        return flashoverlap.Schedule("signal", **{**sizes, "first_multiprocessors": 12, **changes})

    assert eval(repr(schedule()), {"Schedule": flashoverlap.Schedule}) == schedule()
    assert len({schedule(), schedule(), schedule(raster=2), schedule(groups=[2, 1])}) == 3


def test_problems_hash_by_their_values():
    def problem(**changes):
        return flashoverlap.Problem("gemm_all_to_all", **{"m": 4, "n": 8, "k": 16, "ranks": 2, **changes})

    others = [problem(m=6), problem(exchange="heads"), problem(destinations=[[0, 1, 1, 0], [1, 1, 0, 0]])]
    assert len({problem(), problem(), *others}) == 4
