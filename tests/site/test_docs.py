"""What the pages in docs/ tell people to write really runs."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from tests.problem import simulate
from tunefree.core import System, bind
from tunefree.methods.fedavg import FedAvg
from tunefree.testing import quadratic
from tunefree.testing.check import check_algorithm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-your-algorithm.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BRING = (ROOT / "docs" / "your-model-and-data.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", BRING, flags=re.DOTALL)
SYS = System(N=7, S=1, K=4, T=20)


def script(*blocks: str) -> dict[str, Any]:
    """The variables of a script with these lines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("".join(blocks), "page", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def clipped() -> Any:
    return script(BLOCKS[0])["ClippedAvg"]


def test_the_whole_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run = script(*BLOCKS)["run"]
    scores = [line["accuracy"] for line in run.history if line.get("accuracy") is not None]
    assert scores[-1] > max(0.8, scores[0] + 0.2)
    assert capsys.readouterr().out == f"accuracy {scores[-1]:.2f}\n"


def moves(method: Any) -> list[float]:
    thetas = simulate(bind(method, SYS), quadratic()).thetas
    return [float(np.linalg.norm(b - a)) for a, b in pairwise(thetas)]


def test_no_upload_is_longer_than_the_radius(clipped: Any) -> None:
    assert max(moves(clipped(radius=0.2))) <= 0.2 * (1 + 1e-12) < max(moves(FedAvg()))


def test_a_radius_out_of_reach_is_fedavg(clipped: Any) -> None:
    np.testing.assert_allclose(moves(clipped(radius=1e9)), moves(FedAvg()), rtol=1e-10)


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            "D = 0 * down.theta ",
            "D = down.theta.mul_(1) * 0; down.theta.add_(1) ",
            "`work` changes its arguments",
        ),
        ("Exchange(Model, Up, ", "Exchange(", "`round` makes an Exchange without its messages"),
    ],
)
def test_what_the_page_says_of_mistakes(right: str, wrong: str, sentence: str) -> None:
    assert BLOCKS[0].count(right) == 1
    broken = script(BLOCKS[0].replace(right, wrong))["ClippedAvg"]
    assert sentence in "".join(check_algorithm(broken))


def test_the_page_shows_how_a_stranger_tests_a_method() -> None:
    page = script(*BLOCKS[:4])
    tests = [test for name, test in page.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
    (right, wrong), is_its_page = ("(self.radius / norm", "(0.9 * self.radius / norm"), tests[1]
    assert BLOCKS[0].count(right) == 1
    broken = script(BLOCKS[0].replace(right, wrong), *BLOCKS[1:4])[is_its_page.__name__]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        broken()


def test_the_method_has_forty_lines() -> None:
    """Imports and empty lines apart."""
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert sum(not line.startswith("from") for line in lines) <= 40


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("\n\n")[1][:20])
def test_every_example_of_a_model_and_data_runs(example: str) -> None:
    if "import pandas" in example:
        pytest.importorskip("pandas")
    run = script(example)["run"]
    assert run.history[-1]["t"] == 2


def test_there_are_examples_of_models_and_data() -> None:
    assert len(EXAMPLES) >= 5


RECIPES = dict(
    re.findall(
        r"^## (.+?)\n[^#]*?```python\n(.*?)```",
        (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_runs_and_is_short(recipe: str) -> None:
    code = RECIPES[recipe]
    for package in re.findall(r"\b(lightning|transformers|datasets)\b", code.splitlines()[0]):
        pytest.importorskip(package)
    script(code)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 25


def test_every_recipe_is_found() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert len(RECIPES) == page.count("```python") >= 15


IN_HANDS = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
LIVE = {"torch.utils.tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def test_the_page_on_the_python_api_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that send rows elsewhere have a stand-in for what is not installed."""
    monkeypatch.chdir(tmp_path)
    stand_ins = {module: MagicMock() for module, name in LIVE.items() if not find_spec(name)}
    for module, stand_in in stand_ins.items():
        monkeypatch.setitem(sys.modules, module, stand_in)
    names = script(*re.findall(r"```python\n(.*?)```", IN_HANDS, flags=re.DOTALL))
    assert names["run"].history[-1]["round"] == 10
    assert names["trained"].training is False
    out = capsys.readouterr().out
    assert "= (S min(K, 10))^(1/4) / (t + 10)^(3/4)" in out
    assert [each.method for each in names["outcomes"]][1] == "fedavg:eta=0.1"
    if "mlflow" in stand_ins:
        rounds = [call.kwargs["step"] for call in stand_ins["mlflow"].log_metrics.call_args_list]
        assert rounds == list(range(11))


def test_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", IN_HANDS)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
