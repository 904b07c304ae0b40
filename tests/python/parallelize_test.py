"""Dividing the linear layers of existing models."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import Block, draw, expect_equal, run  # noqa: E402, F401

RANKS = [1, 2, 4]
M, N, K = 64, 96, 48


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_divided_model_computes_and_learns_what_the_whole_one_does(ranks, sequence_parallel, draw):
    torch.manual_seed(0)
    whole = Block(K, N)
    x, gradient = draw(M, 2, K), draw(M, 2, K)

    def on_rank(rank, group):
        model = Block(K, N)
        model.load_state_dict(whole.state_dict())
        parallel.parallelize(
            model, group, {"up": "column", "dow*": "row"}, sequence_parallel=sequence_parallel
        )

        def own(tensor):
            return tensor.chunk(ranks)[rank].clone() if sequence_parallel else tensor.clone()

        own_x = own(x).requires_grad_()
        out = model(own_x)
        out.backward(own(gradient))
        return out.detach(), own_x.grad, model.up.weight.grad, model.up.bias.grad, model.down.weight.grad

    results = run(ranks, on_rank)
    whole_x = x.clone().requires_grad_()
    out = whole(whole_x)
    out.backward(gradient)
    for rank, result in enumerate(results):

        def own(tensor):
            return tensor.chunk(ranks)[rank] if sequence_parallel else tensor

        expect_equal(
            result,
            [
                own(out.detach()),
                own(whole_x.grad),
                whole.up.weight.grad.chunk(ranks)[rank],
                whole.up.bias.grad.chunk(ranks)[rank],
                whole.down.weight.grad.chunk(ranks, 1)[rank],
            ],
        )


class TestParallelize:
    def test_a_layer_with_two_names_stays_one_layer(self):
        def on_rank(rank, group):
            model = nn.ModuleDict({"a": (layer := nn.Linear(K, N)), "b": layer})
            parallel.parallelize(model, group, {"*": "column"})
            assert isinstance(model["a"], parallel.ColumnParallelLinear) and model["a"] is model["b"]

        run(2, on_rank)

    def test_what_was_frozen_stays_frozen(self):
        def on_rank(rank, group):
            model = Block(K, N).eval()
            model.up.weight.requires_grad_(False)
            model.down.bias.requires_grad_(False)
            parallel.parallelize(model, group, {"up": "column", "down": "row"})
            wanted = {name: each.requires_grad for name, each in model.named_parameters()}
            assert wanted == {"up.weight": False, "up.bias": True, "down.weight": True, "down.bias": False}
            assert not model.up.training

        run(2, on_rank)

    @pytest.mark.parametrize(
        "plan, message",
        [
            ({"up": "column", "*": "row"}, '"up" is divided by column and by row'),
            ({"up": "column", "down": "sideways"}, '"sideways" must be "column" or "row"'),
            ({"up": "column", "sideways": "row"}, "is the name of no linear layer"),
            ({"up": "column", "odd": "column"}, "out_features of odd = 7: must be a multiple of the 2 ranks"),
        ],
    )
    def test_nothing_is_replaced_by_a_wrong_plan(self, plan, message):
        def on_rank(rank, group):
            model = Block(K, N)
            model.odd = nn.Linear(K, 7)
            with pytest.raises(ValueError, match=message):
                parallel.parallelize(model, group, plan)
            assert type(model.up) is nn.Linear

        run(2, on_rank)

    def test_a_layer_alone_has_no_name(self):
        def on_rank(rank, group):
            with pytest.raises(ValueError, match="is the name of no linear layer"):
                parallel.parallelize(nn.Linear(K, N), group, {"*": "column"})

        run(1, on_rank)

    def test_a_block_that_is_used_twice_is_divided_once(self):
        def on_rank(rank, group):
            block = Block(K, N)
            model = nn.Sequential(block, block)
            parallel.parallelize(model, group, {"*.up": "column", "*.down": "row"})
            assert type(model[1].up) is parallel.ColumnParallelLinear
            assert type(model[1].down) is parallel.RowParallelLinear

        run(2, on_rank)

    def test_all_names_of_a_layer_must_be_in_the_plan(self):
        def on_rank(rank, group):
            model = nn.ModuleDict({"a": (layer := nn.Linear(K, N)), "b": layer})
            with pytest.raises(ValueError, match='"b" is a layer that is divided under another name'):
                parallel.parallelize(model, group, {"a": "column"})
            assert model["a"] is layer

        run(2, on_rank)

    def test_layers_whose_owner_reads_their_weights_are_refused(self):
        """In evaluation PyTorch's encoder layer would compute with this rank's part of the weights alone."""

        def on_rank(rank, group):
            encoder = nn.TransformerEncoderLayer(K, 4, N, batch_first=True)
            with pytest.raises(ValueError, match='"linear1" belongs to a TransformerEncoderLayer'):
                parallel.parallelize(encoder, group, {"linear1": "column", "linear2": "row"})
            assert type(encoder.linear1) is nn.Linear

        run(2, on_rank)

    def test_layers_that_do_more_than_linear_ones_are_refused(self):
        class Scaled(nn.Linear):
            def forward(self, x):
                return 0.5 * super().forward(x)

        def with_hook(layer):
            layer.register_forward_hook(lambda module, inputs, output: -output)
            return layer

        def with_forward(layer):
            layer.forward = lambda x, forward=layer.forward: -forward(x)
            return layer

        def with_hook_of_weight(layer):
            layer.weight.register_hook(lambda gradient: 0 * gradient)
            return layer

        def with_buffer(layer):
            layer.register_buffer("scale", torch.ones(1))
            return layer

        def with_hook_of_state(layer):
            layer.register_state_dict_post_hook(lambda *_: None)
            return layer

        layers = {
            "hook_of_weight": lambda: with_hook_of_weight(nn.Linear(K, N)),
            "buffer": lambda: with_buffer(nn.Linear(K, N)),
            "hook_of_state": lambda: with_hook_of_state(nn.Linear(K, N)),
            "replaced": lambda: with_forward(nn.Linear(K, N)),
            "scaled": lambda: Scaled(K, N),
            "hook": lambda: with_hook(nn.Linear(K, N)),
            "parametrization": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(K, N)),
        }

        def on_rank(rank, group):
            for name, make in layers.items():
                model = nn.ModuleDict({"up": nn.Linear(K, N), name: make()})
                with pytest.raises(ValueError, match=f'plan: "{name}" is a .* that may do more than nn.Linear'):
                    parallel.parallelize(model, group, {"*": "column"})
                assert type(model["up"]) is nn.Linear

        run(2, on_rank)
