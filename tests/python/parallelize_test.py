"""Dividing the linear layers of existing models."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import flashoverlap.torch as parallel  # noqa: E402
from torch_ranks import run  # noqa: E402

N, K = 96, 48


class Block(nn.Module):
    """What `parallelize` is to divide."""

    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


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

        layers = {
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
