"""The examples run, and what they print is right."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def start(example, *arguments):
    """The example's process, which has ended, as no launcher of ranks would start it."""
    launchers = ("LOCAL_RANK", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in launchers}
    command = [sys.executable, EXAMPLES / example, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def run(example, *arguments):
    """What the example prints, on ranks of the host."""
    ended = start(example, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def expect_curves(picture, names):
    root = xml.etree.ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg"
    assert set(names) <= {each.text for each in root.iter(space + "text")}
    drawn = [each.get("d") for each in root.iter(space + "path") if each.get("stroke")]
    assert len(drawn) == 2 * len(names)  # each once more next to its name


def test_operations_are_near_numpy():
    errors = dict(re.findall(r"(\w+): relative error (\S+)", run("operations.py")))
    assert errors.keys() == {"gemm_reduce_scatter", "all_gather_gemm"}
    assert all(0 < float(error) < 1e-6 for error in errors.values())


class Notebook:
    """Runs code cells in order, as Jupyter does, and keeps what is displayed: the value that each ends with."""

    def __init__(self, path):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        self.cells = {cell["id"]: cell for cell in notebook["cells"]}
        assert len(self.cells) == len(notebook["cells"])
        self.names = {}
        self.displayed = {name: self.run(cell) for name, cell in self.cells.items() if cell["cell_type"] == "code"}

    def run(self, cell):
        assert cell["outputs"] == [] and cell["execution_count"] is None
        tree = ast.parse("".join(cell["source"]), cell["id"])
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), self.names)
        return last and eval(compile(ast.Expression(last.value), cell["id"], "eval"), self.names)


def test_the_notebook_plans_predicts_and_draws(monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    notebook = Notebook(EXAMPLES / "plan_and_predict.ipynb")
    printed = capsys.readouterr().out
    table = dict(re.findall(r"^(\w+) +\d+x\d+ .* (\d+\.\d+)$", printed, re.MULTILINE))
    assert table.keys() == {"sequential", "signal", "copy", "store"}
    assert float(table["sequential"]) == 1 < max(map(float, table.values()))
    speed_up = float(re.search(r"(\d+\.\d+) times as fast", printed).group(1))
    assert speed_up == pytest.approx(max(map(float, table.values())), abs=0.01)
    assert "</svg>" in notebook.displayed["timeline"]._repr_svg_()
    expect_curves(notebook.displayed["picture"]._repr_svg_(), notebook.names["speed_ups"])


needs_pytorch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")


def printed_losses(printed):
    """Of some steps: divided among ranks, and whole."""
    return [tuple(map(float, row)) for row in re.findall(r"^ +\d+ +(\S+) +(\S+)$", printed, re.MULTILINE)]


def largest_difference(printed):
    return float(re.search(r"largest difference: (\S+)", printed).group(1))


@needs_pytorch
@pytest.mark.parametrize("ranks", [2, 4])
def test_training_is_that_of_plain_pytorch(ranks, tmp_path):
    picture = tmp_path / "loss.svg"
    printed = run("train.py", "--ranks", str(ranks), "--steps", "50", "--plot", str(picture))
    losses = printed_losses(printed)
    assert len(losses) == 2
    for divided, whole in losses:
        assert divided == pytest.approx(whole, abs=1.5e-4)
    assert losses[1][0] < losses[0][0] < 3.4  # log(TOKENS) = 3.47 without learning
    assert largest_difference(printed) < 1e-5
    names = ["plain PyTorch, one process", f"flashoverlap.torch, {ranks} ranks"]
    expect_curves(picture.read_text(encoding="utf-8"), names)


@needs_pytorch
@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_on_ranks_learn_what_all_on_one_do(ranks):
    printed = run("experts.py", "--ranks", str(ranks), "--steps", "30")
    losses = printed_losses(printed)
    assert len(losses) == 3
    for divided, whole in losses:
        assert divided == pytest.approx(whole, abs=1.5e-4)
    assert losses[2][0] < 0.7 * losses[0][0]
    assert largest_difference(printed) < 1e-5


@needs_pytorch
def test_decoding_needs_several_gpus():
    ended = start("decode.py")
    assert ended.returncode == 2
    assert "1 ranks: start this with torchrun" in ended.stderr
