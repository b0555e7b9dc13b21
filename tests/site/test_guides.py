"""What the guides tell people to write and to type really works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import tunefree.cli
import tunefree_evidence.cli
from tests.site.commands import commands, shorter

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("start", "practitioner", "researcher", "operator", "how-it-works", "faq", "challenge")
TEXTS = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in GUIDES}
PROGRAMS = {"tunefree": tunefree.cli, "tunefree-evidence": tunefree_evidence.cli}
BLOCKS = {
    name: re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) for name, text in TEXTS.items()
}


@pytest.mark.parametrize("guide", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_guide_run_one_after_the_other(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("".join(BLOCKS[guide]), guide, "exec", dont_inherit=True), names)
    if "run" in names:
        scores = [row["accuracy"] for row in names["run"].history if "accuracy" in row]
        assert scores[-1] > 0.8


def test_there_are_blocks_to_run() -> None:
    assert [name for name in ("start", "practitioner", "researcher") if not BLOCKS[name]] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_can_be_typed(guide: str) -> None:
    for command in commands(TEXTS[guide]):
        program, *words = shlex.split(command)
        PROGRAMS[program].parser().parse_args(words)


def test_there_are_commands_to_type() -> None:
    assert sum(len(commands(text)) for text in TEXTS.values()) >= 15


GIVEN = {  # what the reader of a page has already, by the file's name
    "patients.csv": "age,dose,hospital,ill\n"
    + "".join(f"{i % 9},{i % 7},{'abcd'[i % 4]},{(i % 9 + i % 7) // 8}\n" for i in range(120)),
    "tumours.csv": "size,age,ill\n" + "".join(f"{i % 9},{i % 7},{i % 2}\n" for i in range(120)),
    "mypackage/mymodule.py": """import torch

from tunefree.methods.fedavg import FedAvg as MyMethod


def load():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()
""",
    "mine.py": "from mypackage.mymodule import MyMethod\n"
    + re.findall(
        r"```python\n(.*?)```",
        (DOCS / "add-your-algorithm.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )[0],
    "hospital.toml": (
        'data = "breast-cancer"\nclients = 10\nper_round = 2\nlocal_steps = 2\nrounds = 12\n'
    ),
}
OFFLINE = {"fashion-mnist": "digits", "--data mnist": "--data digits", "cnn_mnist": "mlp"}
TYPED = [
    *("start", "researcher", "compare", "bits", "data", "durability", "report", "reproduce"),
    *("unequal-clients", "add-your-algorithm", "your-model-and-data"),
]
ENDLESS = (
    "tunefree watch",
    *(f"tunefree-evidence {word}" for word in ("claims all", "challenge page", "challenge --add")),
)


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED)
def test_the_commands_of_a_page_work_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On embedded data and at toy sizes; tests of their own run those without an end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in GIVEN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for name, embedded in OFFLINE.items():
        text = text.replace(name, embedded)
    first = ["run", *shorter("tunefree run"), "--out"]
    for name in ("runs/first.sqlite", "a.sqlite", "b.sqlite", "base.sqlite"):
        assert tunefree.cli.main([*first, name]) == 0
    assert tunefree.cli.main(["export", "base.sqlite", "--state-dict", "weights.safetensors"]) == 0
    shutil.copytree(DOCS / "evidence", tmp_path / "docs" / "evidence")
    for command in commands(text):
        program, *words = shlex.split(fill(command, tmp_path))
        if not command.startswith(ENDLESS):
            assert PROGRAMS[program].main([*words, *shorter(command)]) == 0, command


def fill(command: str, folder: Path) -> str:
    """The command with the folders that the page leaves to the reader."""
    tuned = next(iter(folder.glob("runs/tune-*/tuned.json")), Path("tuned.json"))
    return re.sub(r"runs/tune-\S+?\.\.\./tuned\.json", str(tuned), command)
