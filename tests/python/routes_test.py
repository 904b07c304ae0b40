"""Operators that take new routes with every run, on NumPy arrays and ranks of the host."""

import numpy as np
import pytest

import flashoverlap

RANKS = [1, 2, 3, 4]
EXPERTS, ROWS, N, K = 2, 24, 16, 32


def problem_of(ranks, **options):
    sizes = {"m": ROWS, "n": N, "k": K, "ranks": ranks, "experts": EXPERTS, "capacity": ranks * ROWS}
    none_yet = [[0] * (ranks * EXPERTS)] * ranks
    return flashoverlap.Problem(
        "all_to_all_gemm", **{**sizes, "data_type": "fp32", "expert_rows": none_yet, **options}
    )


def draw_routes(generator, ranks):
    entries = ranks * EXPERTS
    return [
        generator.multinomial(generator.integers(ROWS + 1), [1 / entries] * entries).tolist() for _ in range(ranks)
    ]


def blocks(routes, matrices):
    """Rows by their sender and expert."""
    return [np.split(each, np.cumsum(rows)[:-1]) for rows, each in zip(routes, matrices)]


def expect_close(result, reference):
    assert result.shape == reference.shape
    assert np.linalg.norm(result - reference) <= 1e-5 * np.linalg.norm(reference)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("b_rows_contiguous", [False, True])
def test_rows_go_to_their_experts_and_come_back_in_every_run(ranks, b_rows_contiguous, generator):
    there, back = (generator.uniform(-1, 1, (ranks * EXPERTS, *shape)).astype(np.float32) for shape in ((N, K), (K, N)))
    runs = [draw_routes(generator, ranks) for _ in range(4)]
    inputs = [[generator.uniform(-1, 1, (ROWS, K)).astype(np.float32) for _ in range(ranks)] for _ in runs]

    def of_rank(weights, rank):
        own = weights[rank * EXPERTS : (rank + 1) * EXPERTS]
        if b_rows_contiguous:
            return np.ascontiguousarray(own.transpose(0, 2, 1)).reshape(-1, weights.shape[1]).T
        return own.reshape(-1, weights.shape[2])

    def on_rank(communicator):
        rank = communicator.rank
        problem = problem_of(ranks, b_layout="row_contiguous" if b_rows_contiguous else "k_contiguous")
        dispatch = flashoverlap.Operator(problem, communicator)
        combine = flashoverlap.Operator(problem.returning(n=K, k=N), communicator)
        results = []
        for run, (routes, a) in enumerate(zip(runs, inputs)):
            dispatch.route(routes[rank])
            assert dispatch.problem.expert_rows == routes
            returning = dispatch.problem.returning(n=K, k=N)
            if run % 3 == 0:
                combine.route(returning.expert_rows[rank])
            else:
                combine.route_all(returning.expert_rows)
            assert combine.problem == returning
            memory = np.full((ranks * ROWS, N), np.nan, np.float32)
            only_sent = run % 2 == 0  # otherwise there are rows that nobody gets
            sent = a[rank][: sum(routes[rank])] if only_sent else a[rank]
            product, gathered = dispatch.run_and_gather(sent, of_rank(there, rank), memory)
            assert product.base is memory
            returned = combine.run(product if only_sent else memory, of_rank(back, rank))
            results.append((product.copy(), gathered, returned))
        return results

    results = flashoverlap.run_ranks(ranks, on_rank)
    for run, (routes, a) in enumerate(zip(runs, inputs)):
        of_senders = blocks(routes, [each[: sum(rows)] for each, rows in zip(a, routes)])
        for rank in range(ranks):
            product, gathered, returned = results[rank][run]
            own = range(rank * EXPERTS, (rank + 1) * EXPERTS)
            np.testing.assert_array_equal(gathered, np.concatenate([of[expert] for of in of_senders for expert in own]))
            expect_close(product, np.concatenate([of[expert] @ there[expert].T for of in of_senders for expert in own]))
            both = [rows @ there[expert].T @ back[expert].T for expert, rows in enumerate(of_senders[rank])]
            expect_close(returned, np.concatenate(both))


def test_routes_that_do_not_fit_are_refused_on_every_rank_and_change_nothing(generator):
    def on_rank(communicator):
        operator = flashoverlap.Operator(problem_of(2, capacity=30), communicator)
        operator.route(routes[communicator.rank])
        for wrong, message in (
            ([20, 0, 0, 0], "rows that rank 0 receives = 40: must be at most capacity = 30"),
            ([0, 0, 0, ROWS + 1], "must be at most m = 24"),
            ([1, 1, 1], "3 entries: must have 4"),
            ([-1, 0, 0, 0], "must not be negative"),
        ):
            with pytest.raises(flashoverlap.InvalidArgument, match=message):
                operator.route(wrong)
        assert operator.problem.expert_rows == routes
        return operator.run(a, b)

    routes = [[1, 2, 3, 4], [5, 4, 3, 2]]
    a, b = (generator.uniform(-1, 1, shape).astype(np.float32) for shape in ((ROWS, K), (EXPERTS * N, K)))
    for result, rows in zip(flashoverlap.run_ranks(2, on_rank), (12, 12)):
        assert result.shape == (rows, N)


def test_rows_that_routes_send_must_be_there(generator):
    def on_rank(communicator):
        operator = flashoverlap.Operator(problem_of(2), communicator)
        operator.route([5, 0, 0, 2])
        for rows in (6, ROWS + 1):
            rule = rf"rank 0: shape of a = \({rows}, {K}\): must be \(7 to {ROWS}, {K}\)"
            with pytest.raises(flashoverlap.InvalidArgument, match=rule):
                operator.run(np.zeros((rows, K), np.float32), b)

    b = np.zeros((EXPERTS * N, K), np.float32)
    flashoverlap.run_ranks(2, on_rank)


def test_only_a_problem_with_a_capacity_takes_routes():
    def on_rank(communicator):
        fixed = flashoverlap.Operator(problem_of(2, capacity=0, expert_rows=[[3] * 4] * 2), communicator)
        with pytest.raises(flashoverlap.InvalidArgument, match="must have a capacity"):
            fixed.route([3] * 4)

    flashoverlap.run_ranks(2, on_rank)


def test_ranks_that_route_different_operators_are_told():
    def on_rank(communicator):
        operators = [flashoverlap.Operator(problem_of(2), communicator) for _ in range(2)]
        with pytest.raises(flashoverlap.CommunicationError, match="different operators"):
            operators[communicator.rank].route([0] * 4)

    flashoverlap.run_ranks(2, on_rank)


def test_a_problem_says_where_rows_go():
    problem = problem_of(2, expert_rows=[[1, 2, 3, 4], [5, 6, 0, 0]])
    assert [problem.rows_between(*ranks) for ranks in ((0, 0), (0, 1), (1, 0), (1, 1))] == [3, 7, 11, 0]
    assert (problem.experts, problem.capacity) == (EXPERTS, 2 * ROWS)
    assert repr(problem).endswith("experts=2, capacity=48)")
    back = problem.returning(n=K, k=N)
    assert (back.operation, back.m, back.capacity) == ("gemm_all_to_all", 2 * ROWS, ROWS)
    assert back.expert_rows == [[1, 2, 5, 6], [3, 4, 0, 0]]
    with pytest.raises(flashoverlap.InvalidArgument, match="rank = 2"):
        problem.rows_between(0, 2)
    heads = flashoverlap.Problem("all_to_all_gemm", m=8, n=N, k=K, ranks=2, exchange="heads")
    with pytest.raises(flashoverlap.InvalidArgument, match="exchange = heads: must be rows"):
        heads.rows_between(0, 1)
    with pytest.raises(flashoverlap.InvalidArgument, match="must be all_to_all_gemm with expert_rows"):
        heads.returning(n=K, k=N)
