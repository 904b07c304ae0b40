"""The operations on GPUs: each strategy, what is gathered, results that are read later, refusals."""

import pytest
from gpu_ranks import DTYPES, K, M, N, draw, expect_close, of_all, operator_by, own, total

import torch
import torch.distributed as dist

import flashoverlap
import flashoverlap.torch as parallel

pytestmark = pytest.mark.usefixtures("seed")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [M, 1000, 8])
class TestOperations:
    def test_gemm_all_reduce(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        expect_close(flashoverlap.gemm_all_reduce(a, b, parallel.communicator(group)), total(a, b))

    def test_gemm_reduce_scatter_into_poisoned_memory(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        out = torch.full((m // dist.get_world_size(), N), torch.nan, device="cuda", dtype=dtype)
        assert flashoverlap.gemm_reduce_scatter(a, b, parallel.communicator(group), out) is out
        expect_close(out, own(total(a, b)))

    def test_all_gather_gemm(self, group, m, dtype):
        a, b = draw(m // dist.get_world_size(), K, dtype=dtype), draw(N, K, dtype=dtype)
        out = flashoverlap.all_gather_gemm(a, b, parallel.communicator(group))
        expect_close(out, torch.cat(of_all(a)) @ b.float().t())

    def test_all_to_alls_are_inverse(self, group, m, dtype):
        a, b = draw(m, K, dtype=dtype), draw(N, K, dtype=dtype)
        sent = flashoverlap.gemm_all_to_all(a, b, parallel.communicator(group))
        expect_close(sent, torch.cat([own(x @ w.t(), 1) for x, w in zip(of_all(a), of_all(b))]))
        c = draw(K, N, dtype=dtype)
        back = flashoverlap.all_to_all_gemm(sent, c, parallel.communicator(group))
        expect_close(back, (a.float() @ b.float().t()) @ c.float().t())


def test_only_groups_of_some_ranks_have_other_collectives_next_to_theirs(group):
    assert not parallel.communicator(group).concurrent_collectives
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    assert parallel.communicator(alone).concurrent_collectives == (dist.get_world_size() > 1)


class WithoutExchangeApi(torch.Tensor):
    """As tensors were before PyTorch had DLPack's exchange API, which tells the current stream."""

    __dlpack_c_exchange_api__ = None


@pytest.mark.parametrize("kind", [torch.Tensor, WithoutExchangeApi])
def test_a_run_follows_what_the_current_stream_does(group, kind):
    a, b = draw(M, K), draw(N, K)
    late = torch.zeros_like(a)
    communicator = parallel.communicator(group)
    flashoverlap.gemm_all_reduce(late, b, communicator)  # makes the operator
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # some 50 ms
        late.copy_(a)
        out = flashoverlap.gemm_all_reduce(late.as_subclass(kind), b.as_subclass(kind), communicator)
    stream.synchronize()
    expect_close(out.as_subclass(torch.Tensor), total(a, b))


@pytest.mark.parametrize("operation", ["gemm_all_reduce", "gemm_all_to_all"])
@pytest.mark.parametrize("strategy", ["copy", "store"])
def test_a_result_that_peers_write_is_the_callers(group, operation, strategy):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem(operation, m=M, n=N, k=K, ranks=communicator.ranks)
    operator = operator_by(strategy, problem, communicator)
    a, b = draw(M, K), draw(N, K)
    first = operator.run(a, b)
    kept = first.clone()
    operator.run(draw(M, K), b)
    assert torch.equal(first, kept)
    if operation == "gemm_all_reduce":
        expect_close(first, total(a, b))


@pytest.mark.parametrize("strategy", ["sequential", "signal", "copy", "store", "p2p"])
@pytest.mark.parametrize("k", [K, 1000])
def test_gathered_rows_are_those_of_all_ranks(group, strategy, k):
    """Also where rows of k elements do not begin at lines of L2."""
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("all_gather_gemm", m=M, n=N, k=k, ranks=communicator.ranks)
    expect_gathered(operator_by(strategy, problem, communicator), k)


def test_rows_that_are_gathered_in_several_groups_are_in_order(group):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("all_gather_gemm", m=M, n=N, k=K, ranks=communicator.ranks)
    best = flashoverlap.search(problem, communicator.machine, ["signal"])[0].schedule
    tile = {each: getattr(best, each) for each in ("tile_rows", "tile_cols", "cluster_rows")}
    schedule = flashoverlap.Schedule("signal", **tile, multiprocessors=2, waves_per_group=1)
    expect_gathered(flashoverlap.Operator(problem, communicator, schedule), K)


def expect_gathered(operator, k):
    ranks = operator.problem.ranks
    kept = []
    for keep in (False, True, False):
        a, b = draw(M // ranks, k), draw(N, k)
        whole = torch.cat(of_all(a))
        product, gathered = operator.run_and_gather(a, b, keep=keep)
        expect_close(product, whole @ b.float().t())
        assert torch.equal(gathered.float(), whole)
        if keep:
            kept.append((gathered, whole))
    for gathered, whole in kept:
        assert torch.equal(gathered.float(), whole)  # after another run


@pytest.mark.parametrize("strategy", ["sequential", "copy", "store"])
def test_exchanged_heads_whose_columns_do_not_begin_at_lines(group, strategy):
    communicator = parallel.communicator(group)
    world, heads = communicator.ranks, 504
    problem = flashoverlap.Problem("all_to_all_gemm", m=M, n=N, k=heads * world, ranks=world, exchange="heads")
    operator = operator_by(strategy, problem, communicator)
    a, b = draw(M * world, heads), draw(N, heads * world)
    parts = [own(part) for part in of_all(a)]
    product, exchanged = operator.run_and_gather(a, b)
    expect_close(product, torch.cat(parts, 1) @ b.float().t())
    assert torch.equal(exchanged.float(), torch.cat(parts))


@pytest.mark.parametrize("is_read_later", [False, True])
@pytest.mark.parametrize(
    "strategy, layout",
    [("signal", "tiled"), ("store", "partial"), ("sequential", "partial"), ("copy", "natural")],
)
def test_operators_whose_results_are_read_by_the_operator(group, strategy, layout, is_read_later):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("gemm_all_reduce", m=1000, n=N, k=K, ranks=dist.get_world_size())
    operator = operator_by(strategy, problem, communicator, layout, is_read_later=is_read_later)
    a, b = draw(1000, K), draw(N, K)
    result = operator.run(a, b)
    stays = layout == "partial" or (is_read_later and strategy == "copy")  # peers have written it
    assert (len(result) == 0) == stays
    expect_close(operator.natural(result), total(a, b))
    expect_close(operator.rms_norm(result, draw(N))[1], total(a, b))
    with pytest.raises(flashoverlap.InvalidArgument, match="shape of result"):
        operator.natural(draw(8, 8))
    with pytest.raises(flashoverlap.InvalidArgument, match="a matrix in host memory: must be on GPU"):
        operator.rms_norm(result, draw(N).cpu())


def test_what_one_rank_gathers_of_a_wider_matrix(group):
    alone = parallel.communicator(group).split(dist.get_rank())
    a, b = draw(M, 2 * K)[:, :K], draw(N, K)
    operator = flashoverlap.operations.operator_for("all_gather_gemm", a, b, alone)
    product, gathered = operator.run_and_gather(a, b)
    expect_close(product, a.float() @ b.float().t())
    assert torch.equal(gathered, a)


def test_strides_of_a_single_row_make_no_new_operators(group):
    communicator = parallel.communicator(group).split(0)
    b = draw(N, K)
    for rows in (1, 2, 3):
        row = draw(1, rows, K)[:, -1]
        expect_close(flashoverlap.gemm_all_reduce(row, b, communicator), total(row, b))
    assert len(communicator.operators) == 1


def test_operators_that_no_graph_runs_are_closed_for_others(group, monkeypatch):
    monkeypatch.setattr(flashoverlap.operations, "most_operators", 3)
    communicator = parallel.communicator(group).split(0)
    b = draw(N, K)
    a = {m: draw(m, K) for m in (M, *range(8, 96, 8))}
    flashoverlap.gemm_all_reduce(a[M], b, communicator)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        captured = flashoverlap.gemm_all_reduce(a[M], b, communicator)
    free = []
    for turn in range(4):
        for m in range(8, 96, 8):
            expect_close(flashoverlap.gemm_all_reduce(a[m], b, communicator), total(a[m], b))
            assert len(communicator.operators) <= 3
        free.append(torch.cuda.mem_get_info()[0])
        captured.fill_(torch.nan)
        graph.replay()
        expect_close(captured, total(a[M], b))
    assert [operator.problem.m for operator in communicator.operators.values()] == [M, 80, 88]
    assert free[-1] > free[0] - 2**22, free
    del graph


@pytest.mark.parametrize("m", [70, 250, 1000, 1030])
def test_numbers_of_rows_that_come_late_take_operators_of_more_rows(group, monkeypatch, m):
    monkeypatch.setattr(flashoverlap.changing_rows, "most_row_counts", 0)
    communicator, world = parallel.communicator(group).split(0), dist.get_world_size()
    a, b, norm_weight, residual = draw(m, K), draw(N, K), draw(N), draw(m, N)
    whole = total(a, b)
    expect_close(flashoverlap.gemm_all_reduce(a, b, communicator), whole)
    expect_close(flashoverlap.gemm_reduce_scatter(a, b, communicator), own(whole))
    shard = a[: m // world]
    expect_close(flashoverlap.all_gather_gemm(shard, b, communicator), torch.cat(of_all(shard)) @ b.float().t())
    normalized, summed = parallel.matmul_all_reduce_rms_norm(a, b, norm_weight, communicator, residual)
    expect_close(summed, whole + residual.float())
    expect_close(
        normalized, torch.nn.functional.rms_norm(whole + residual.float(), (N,), norm_weight.float(), 1e-6)
    )
    assert all(operator.problem.m > m for operator in communicator.operators.values())


def test_an_operator_that_was_closed_says_so(group):
    communicator = parallel.communicator(group)
    problem = flashoverlap.Problem("gemm_all_reduce", m=M, n=N, k=K, ranks=communicator.ranks)
    operator = flashoverlap.Operator(problem, communicator)
    a, b = draw(M, K), draw(N, K)
    expect_close(operator.run(a, b), total(a, b))
    operator.close()
    with pytest.raises(flashoverlap.CommunicationError, match="run: the operator is closed"):
        operator.run(a, b)
    expect_close(flashoverlap.gemm_all_reduce(a, b, communicator), total(a, b))


def test_sub_groups_of_one_rank(group):
    alone = parallel.communicator(group).split(dist.get_rank())
    a, b = draw(M, K), draw(N, K)
    expect_close(flashoverlap.gemm_reduce_scatter(a, b, alone), a.float() @ b.float().t())


def test_wrong_arguments_are_refused_on_every_rank(group):
    communicator = parallel.communicator(group)
    with pytest.raises(flashoverlap.InvalidArgument, match="columns of b"):
        flashoverlap.gemm_all_reduce(draw(M, K), draw(N, K + 8), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match="a matrix in host memory: must be on GPU"):
        flashoverlap.gemm_all_reduce(draw(M, K).cpu(), draw(N, K).cpu(), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match="fp32"):
        flashoverlap.gemm_all_reduce(draw(M, K).float(), draw(N, K).float(), communicator)
    with pytest.raises(flashoverlap.InvalidArgument, match=r"shape of out = \(8, 8\): must be"):
        flashoverlap.gemm_all_reduce(draw(M, K), draw(N, K), communicator, torch.empty(8, 8, device="cuda"))
    expect_close(flashoverlap.gemm_all_reduce(a := draw(M, K), b := draw(N, K), communicator), total(a, b))
