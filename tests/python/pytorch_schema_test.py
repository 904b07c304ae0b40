"""The operations with PyTorch's own schema, on ranks of the host."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import draw, expect_equal, run  # noqa: E402, F401

N, K = 96, 48


@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
@pytest.mark.parametrize("dim", [0, 1])
def test_fused_matmul_reduce_scatter(reduce_op, dim, draw):
    a, b = [draw(8, 4, K) for _ in range(2)], [draw(K, N) for _ in range(2)]
    total = (a[0] @ b[0] + a[1] @ b[1]) / (2 if reduce_op == "avg" else 1)

    def on_rank(rank, group):
        name = parallel.groups.name_of(group)
        return torch.ops.flashoverlap.fused_matmul_reduce_scatter(a[rank], b[rank], reduce_op, dim, name)

    expect_equal(run(2, on_rank), total.chunk(2, dim))


@pytest.mark.parametrize("return_A", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_fused_all_gather_matmul(return_A, dim, draw):
    shards, bs = draw(8, 4, K).chunk(2, dim), [draw(K, N), draw(K, 32)]
    whole = torch.cat(shards, dim)

    def on_rank(rank, group):
        name = parallel.groups.name_of(group)
        return torch.ops.flashoverlap.fused_all_gather_matmul(
            shards[rank], bs, dim, name, return_A=return_A
        )

    for gathered, products in run(2, on_rank):
        expect_equal(products, [whole @ b for b in bs])
        if return_A:
            expect_equal([gathered], [whole])
        else:
            assert gathered is None


def test_gradients_of_fused_all_gather_matmul(draw):
    shards, b = draw(16, K).chunk(2), draw(K, N)

    def on_rank(rank, group):
        shard, name = shards[rank].clone().requires_grad_(), parallel.groups.name_of(group)
        fused = torch.ops.flashoverlap.fused_all_gather_matmul
        with pytest.raises(ValueError, match="return_A = True: has no gradient"):
            fused(shard, [b], 0, name)
        _, products = fused(shard, [b, 2 * b], 0, name, return_A=False)
        sum(products).sum().backward()
        return shard.grad

    expect_equal(run(2, on_rank), [(6 * b.sum(1)).expand(8, K)] * 2)


@pytest.mark.parametrize("name", ["fused_all_gather_matmul", "fused_matmul_reduce_scatter"])
def test_arguments_have_the_names_of_pytorchs(name):
    pytest.importorskip("torch.distributed._symmetric_memory")
    theirs = getattr(torch.ops.symm_mem, name)
    taken = [argument.name for argument in getattr(torch.ops.flashoverlap, name).default._schema.arguments]
    assert taken == [argument.name for argument in theirs.default._schema.arguments][: len(taken)]


def test_operands_of_pytorchs_schema_lie_in_any_order(draw):
    x, weight = draw(K, 16), draw(K, N)
    no_stride_of_1 = torch.stack([x.t(), x.t()], -1)[..., 0]

    def on_rank(rank, group):
        operations = torch.ops.flashoverlap
        name = parallel.groups.name_of(group)
        gathered, (product,) = operations.fused_all_gather_matmul(x.t()[rank::2], [weight], 0, name)
        scattered = operations.fused_matmul_reduce_scatter(no_stride_of_1, weight, "sum", 0, name)
        return gathered, product, scattered

    rows = torch.cat([x.t()[0::2], x.t()[1::2]])
    for rank, result in enumerate(run(2, on_rank)):
        expect_equal(result, [rows, rows @ weight, 2 * (x.t() @ weight).chunk(2)[rank]])
