"""Process groups and device meshes of real processes, whose operations Gloo computes in place of GPUs."""

import os
import shutil
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as collectives  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import Block  # noqa: E402

RANKS = 4
SEQUENCE, BATCH, K, N = 8, 2, 16, 24


class GlooOperator:
    def __init__(self, problem, group):
        self.problem, self.group = problem, group
        self.shape = problem.out_shape(dist.get_rank(group))

    def run_and_gather(self, a, b, out, keep):
        self.run(a, b, out)
        return self._gathered(a)

    def _gathered(self, operand, layout="k_contiguous"):
        parts = [operand.new_empty(operand.shape) for _ in range(self.group.size())]
        dist.all_gather(parts, operand.detach().contiguous(), self.group)
        return torch.cat(parts, 0 if layout == "k_contiguous" else 1)

    def run(self, a, b, out):
        a, b, problem = a.detach(), b.detach(), self.problem
        if problem.operation == "all_gather_gemm":
            if problem.gathered == "a":
                a = self._gathered(a, problem.a_layout)
            else:
                b = self._gathered(b, problem.b_layout)
            out.copy_(a @ b.t())
        else:
            product = a @ b.t()
            dist.all_reduce(product, group=self.group)
            out.copy_(product if len(product) == len(out) else product.split(len(out))[self.group.rank()])


class GlooCommunicator:
    """In place of the one for GPUs."""

    made = 0
    machine = None
    is_closed = False

    def __init__(self, group):
        GlooCommunicator.made += 1
        self.group, self.rank, self.ranks = group, group.rank(), group.size()
        self.name, self.operators = f"gloo-{self.made}", {}

    @classmethod
    def from_process_group(cls, group, *, wait_limit):
        communicator = cls(group)
        communicator.wait_limit = wait_limit
        return communicator

    def bind(self, problem, schedule, pitches, b_is_constant, is_read_later):
        return GlooOperator(problem, self.group)


def on_rank(rank, store):
    sys.modules["flashoverlap.gpu"] = types.SimpleNamespace(Communicator=GlooCommunicator)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (2, RANKS // 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    whole, x, gradient = Block(K, N), torch.randn(SEQUENCE, BATCH, K), torch.randn(SEQUENCE, BATCH, K)
    divided = Block(K, N)
    divided.load_state_dict(whole.state_dict())
    with pytest.raises(RuntimeError, match="mesh_dim"):
        parallel.parallelize(divided, mesh, {"up": "column", "down": "row"})
    parallel.parallelize(divided, mesh["tensor"], {"up": "column", "down": "row"})
    assert GlooCommunicator.made == 1

    own = mesh["tensor"].get_local_rank()
    own_x = x.chunk(2)[own].clone().requires_grad_()
    out = divided(own_x)
    out.backward(gradient.chunk(2)[own])
    whole_x = x.requires_grad_()
    whole(whole_x).backward(gradient)
    for result, reference in (
        (out.detach(), whole(whole_x).detach().chunk(2)[own]),
        (own_x.grad, whole_x.grad.chunk(2)[own]),
        (divided.up.weight.grad, whole.up.weight.grad.chunk(2)[own]),
        (divided.down.weight.grad, whole.down.weight.grad.chunk(2, 1)[own]),
    ):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-4)

    # After its communicator is closed a group gets another one.
    closed = parallel.communicator(dist.group.WORLD, wait_limit=7)
    assert closed.wait_limit == 7 and parallel.communicator(dist.group.WORLD) is closed
    closed.is_closed = True

    # A group by the same name that is another one.
    world = parallel.communicator(dist.group.WORLD)
    assert world is not closed
    assert world.ranks == RANKS and parallel.communicator(dist.group.WORLD) is world
    name = dist.group.WORLD.group_name
    dist.destroy_process_group()
    if rank < 2:
        dist.init_process_group("gloo", init_method=f"file://{store}-again", rank=rank, world_size=2)
        assert dist.group.WORLD.group_name == name
        assert parallel.communicator(dist.group.WORLD).ranks == 2
        assert parallel.groups.named(name).ranks == 2
        dist.destroy_process_group()


def test_a_device_mesh_divides_a_model(tmp_path):
    torch.multiprocessing.spawn(on_rank, (str(tmp_path / "store"),), nprocs=RANKS)


def layers_of_a_compiled_model(x, up, down, bias):
    """Column-parallel, row-parallel with sequence parallelism, then row-parallel without."""
    name = dist.group.WORLD.group_name
    hidden = torch.relu(collectives.all_gather_tensor(x, 0, name) @ up.t())
    scattered = collectives.reduce_scatter_tensor(hidden @ down.t(), "sum", 0, name) + bias
    return collectives.all_reduce(scattered @ up.t(), "avg", name)


def compiled_on_rank(rank, store):
    sys.modules["flashoverlap.gpu"] = types.SimpleNamespace(Communicator=GlooCommunicator)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    shapes = ((SEQUENCE, K), (N, K), (K, N), (K,))
    operands = [torch.randn(shape).to(torch.bfloat16) for shape in shapes]
    expected = layers_of_a_compiled_model(*operands)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{store}-compiled-{rank}"  # of nobody else
    torch._inductor.config.post_grad_custom_pre_pass = parallel.OverlapPass()
    result = torch.compile(layers_of_a_compiled_model, fullgraph=True)(*operands)
    torch.testing.assert_close(result, expected, rtol=5e-2, atol=5e-1)
    ran = [operator.problem.operation for operator in parallel.groups.named(dist.group.WORLD.group_name).operators.values()]
    assert ran == ["all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"]
    dist.destroy_process_group()


@pytest.mark.skipif(shutil.which("c++") is None, reason="Inductor needs a compiler")
def test_inductor_compiles_a_rewritten_model(tmp_path):
    torch.multiprocessing.spawn(compiled_on_rank, (str(tmp_path / "store"),), nprocs=2)
