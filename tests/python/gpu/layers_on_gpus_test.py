"""Layers on GPUs, forward and backward: gradients, norms, Ulysses attention, CUDA graphs, compiled models."""

import pytest
from gpu_ranks import K, M, N, draw, expect_close, of_all, own

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch._inductor import config as inductor

import flashoverlap.torch as parallel

pytestmark = pytest.mark.usefixtures("seed")


OPERATIONS = {
    parallel.matmul_reduce_scatter: lambda world: ((M, K), (N, K), (M // world, N)),
    parallel.all_gather_matmul: lambda world: ((M // world, K), (N, K), (M, N)),
    parallel.sharded_weight_matmul: lambda world: ((M, K), (N // world, K), (M, N)),
    parallel.matmul_all_to_all: lambda world: ((M, K), (N, K), (M * world, N // world)),
    parallel.all_to_all_matmul: lambda world: ((M * world, K // world), (N, K), (M, N)),
}


def whole_results(operation, xs, weights):
    """Of all ranks, differentiably, in one process."""
    if operation is parallel.matmul_reduce_scatter:
        return sum(x @ w.t() for x, w in zip(xs, weights)).chunk(len(xs))
    if operation is parallel.all_gather_matmul:
        return [torch.cat(xs) @ w.t() for w in weights]
    if operation is parallel.matmul_all_to_all:
        columns = [(x @ w.t()).chunk(len(xs), 1) for x, w in zip(xs, weights)]
        return [torch.cat(of_rank) for of_rank in zip(*columns)]
    if operation is parallel.all_to_all_matmul:
        rows = [x.chunk(len(xs)) for x in xs]
        return [torch.cat(of_rank, 1) @ w.t() for of_rank, w in zip(zip(*rows), weights)]
    return [x @ torch.cat(weights).t() for x in xs]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_gradients_are_those_of_the_whole_computation(group, operation):
    x_shape, weight_shape, out_shape = OPERATIONS[operation](dist.get_world_size())
    x, weight, gradient = draw(*x_shape).requires_grad_(), draw(*weight_shape).requires_grad_(), draw(*out_shape)
    out = operation(x, weight, group)
    of_x, of_weight = torch.autograd.grad(out, [x, weight], gradient)

    xs, weights = ([each.requires_grad_() for each in of_all(of.detach())] for of in (x, weight))
    outs = whole_results(operation, xs, weights)
    torch.autograd.backward(outs, of_all(gradient))
    rank = dist.get_rank()
    expect_close(out.detach(), outs[rank].detach())
    expect_close(of_x, xs[rank].grad)
    expect_close(of_weight, weights[rank].grad)


def test_pytorchs_schema_gives_what_pytorchs_operations_give(group):
    a, b = draw(M, K), draw(K, N)
    shard = own(a).contiguous()
    name = group.group_name
    expect_close(
        torch.ops.flashoverlap.fused_matmul_reduce_scatter(a, b, "sum", 0, name),
        own(sum(x @ w for x, w in zip(of_all(a), of_all(b)))),
    )
    gathered, (product,) = torch.ops.flashoverlap.fused_all_gather_matmul(shard, [b], 0, name)
    whole = torch.cat(of_all(shard))
    torch.testing.assert_close(gathered.float(), whole, rtol=0, atol=0)
    expect_close(product, whole @ b.float())


@pytest.mark.parametrize("key_heads", [16, 8])
@pytest.mark.parametrize("query_slices", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_ulysses_attention_is_that_of_one_rank_with_the_whole_sequence(group, key_heads, query_slices, causal):
    alone = parallel.communicator(group).split(dist.get_rank())
    layer, whole = (
        parallel.UlyssesAttention(
            K, 16, key_heads, group=of, causal=causal, query_slices=slices, device="cuda", dtype=torch.bfloat16
        )
        for of, slices in ((group, query_slices), (alone, 1))
    )
    for weight in layer.parameters():
        dist.broadcast(weight.data, 0)
    whole.load_state_dict(layer.state_dict())
    x, gradient = (draw(96, 3, K) for _ in range(2))

    out = layer(x.requires_grad_())
    of_x, *of_weights = torch.autograd.grad(out, [x, *layer.parameters()], gradient)
    whole_x = torch.cat(of_all(x.detach())).bfloat16().requires_grad_()
    whole_out = whole(whole_x)
    of_whole_x, *of_whole_weights = torch.autograd.grad(
        whole_out, [whole_x, *whole.parameters()], torch.cat(of_all(gradient)).bfloat16()
    )
    expect_close(out.detach(), own(whole_out.detach()).float())
    expect_close(of_x, own(of_whole_x).float())
    for result, reference in zip(of_weights, of_whole_weights, strict=True):
        expect_close(sum(of_all(result)), reference.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2 * N,), (M, 2 * N), (7, 3, 2 * 333), (M, 2)])
def test_swiglu_and_its_gradient_are_pytorchs_rounded_once(shape, dtype):
    gate_up = draw(*shape, dtype=dtype).requires_grad_()
    hidden = parallel.swiglu(gate_up)
    assert type(hidden.grad_fn).__name__ == "_SwiGLUBackward"  # one kernel
    gradient = draw(*hidden.shape, dtype=dtype)
    (of_gate_up,) = torch.autograd.grad(hidden, gate_up, gradient)
    reference = gate_up.detach().float().requires_grad_()
    gate, up = reference.chunk(2, -1)
    whole = torch.nn.functional.silu(gate) * up
    whole.backward(gradient.float())
    limit = 2**-8 if dtype == torch.bfloat16 else 2**-11
    torch.testing.assert_close(hidden.float(), whole.detach(), rtol=limit, atol=1e-6)
    torch.testing.assert_close(of_gate_up.float(), reference.grad, rtol=limit, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(parallel.swiglu(gate_up), hidden)


def test_swiglu_of_what_one_kernel_does_not_take_is_pytorchs():
    wide = draw(M, 2 * N)
    for gate_up in (wide.float(), wide[:, : N // 2 * 2], wide.t(), draw(0, 4)):
        gate, up = gate_up.chunk(2, -1)
        assert torch.equal(parallel.swiglu(gate_up), torch.nn.functional.silu(gate) * up)
    compiled = torch.compile(parallel.swiglu, fullgraph=True)
    gate, up = wide.float().chunk(2, -1)
    expect_close(compiled(wide), torch.nn.functional.silu(gate) * up)


def test_swiglu_in_a_cuda_graph_reads_what_is_there_when_it_is_replayed():
    gate_up = draw(M, 2 * N)
    parallel.swiglu(gate_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hidden = parallel.swiglu(gate_up)
    gate_up.copy_(draw(M, 2 * N))
    graph.replay()
    assert torch.equal(hidden, parallel.swiglu(gate_up))


NORMS = {
    "all_reduce": parallel.matmul_all_reduce_rms_norm,
    "reduce_scatter": parallel.matmul_reduce_scatter_rms_norm,
}


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("m", [M, 1000, 8])
@pytest.mark.parametrize("comm_op", NORMS)
def test_a_norm_of_a_reordered_result_and_its_gradients(group, comm_op, m, has_residual):
    scatters = comm_op == "reduce_scatter"
    x, weight = draw(m, K), draw(N, K)
    norm_weight, residual, gradient, of_next = (draw(*shape) for shape in ((N,), (m, N), (m, N), (m, N)))
    for each in (norm_weight, residual, gradient, of_next):
        dist.broadcast(each, 0)

    def part(tensor):
        return own(tensor) if scatters else tensor

    given = [each.requires_grad_() for each in (x, weight, norm_weight, part(residual).contiguous())]
    x, weight, norm_weight, added = given
    normalized, total_of_rows = NORMS[comm_op](x, weight, norm_weight, group, added if has_residual else None)
    torch.autograd.backward([normalized, total_of_rows], [part(gradient), part(of_next)])

    xs, weights = ([each.requires_grad_() for each in of_all(of.detach())] for of in (x, weight))
    whole_norm_weight, whole_residual = (each.detach().float().requires_grad_() for each in (norm_weight, residual))
    whole = sum(x @ w.t() for x, w in zip(xs, weights)) + (whole_residual if has_residual else 0)
    whole_norm = torch.nn.functional.rms_norm(whole, (N,), whole_norm_weight, 1e-6)
    torch.autograd.backward([whole_norm, whole], [gradient.float(), of_next.float()])
    rank = dist.get_rank()
    expect_close(normalized.detach(), part(whole_norm.detach()))
    expect_close(total_of_rows.detach(), part(whole.detach()))
    expect_close(x.grad, xs[rank].grad)
    expect_close(weight.grad, weights[rank].grad)
    expect_close(sum(of_all(norm_weight.grad)) if scatters else norm_weight.grad, whole_norm_weight.grad)
    if has_residual:
        expect_close(added.grad, part(whole_residual.grad))


def test_a_captured_norm_replays_on_new_inputs(group):
    layer = parallel.OverlapRowParallelLayer(
        K * dist.get_world_size(), N, group=group, device="cuda", dtype=torch.bfloat16
    )
    norm = parallel.ReorderRMSNorm(N, device="cuda", dtype=torch.bfloat16)
    x = draw(M, K)
    with torch.no_grad():
        norm(layer(x))
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = norm(layer(x))
        x.copy_(draw(*x.shape))
        out.fill_(torch.nan)
        graph.replay()
        expect_close(out, norm(layer(x)).float())
    del graph


@pytest.mark.parametrize("m", [M, 8])
def test_constant_weights_follow_one_another(group, m):
    """Each product is the input of the next one, which begins right after it."""
    weights = [draw(K, K) for _ in range(4)]
    x = reference = own(draw(m, K * dist.get_world_size()), 1).contiguous()
    for weight in weights:
        x = parallel.matmul_all_reduce(x, weight, group, weight_is_constant=True)
        reference = parallel.matmul_all_reduce(reference, weight, group)
    expect_close(x, reference.float())


def test_a_captured_layer_replays_on_new_inputs(group):
    layer = parallel.GatedFeedForward(K, 2 * N, group=group, device="cuda", dtype=torch.bfloat16)
    x = draw(M // dist.get_world_size(), K)
    with torch.no_grad():
        layer(x)
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x)
        for _ in range(3):
            x.copy_(draw(*x.shape))
            out.fill_(torch.nan)
            graph.replay()
            expect_close(out, layer(x).float())
    del graph


def test_a_compiled_layer_is_one_graph(group):
    layer = parallel.GatedFeedForward(K, 2 * N, group=group, device="cuda", dtype=torch.bfloat16)
    x = draw(M // dist.get_world_size(), K)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expect_close(compiled(x).detach(), layer(x).detach().float())


def test_inductor_overlaps_a_compiled_model(group):
    name = group.group_name

    def layers(x, up, down):
        hidden = torch.relu(collectives.all_gather_tensor(x, 0, name) @ up.t())
        return collectives.reduce_scatter_tensor(hidden @ down.t(), "sum", 0, name)

    x, up, down = draw(M // dist.get_world_size(), K), draw(808, K), draw(K, 808)  # of no other test
    expected = layers(x, up, down).float()
    operators = parallel.groups.named(name).operators
    before = len(operators)
    with inductor.patch(post_grad_custom_pre_pass=parallel.OverlapPass()):
        expect_close(torch.compile(layers, fullgraph=True)(x, up, down), expected)
    ran = [operator.problem.operation for operator in list(operators.values())[before:]]
    assert ran == ["all_gather_gemm", "gemm_reduce_scatter"]
