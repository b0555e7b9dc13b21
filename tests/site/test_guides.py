"""What the guides tell people to write and to type really works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tunefree.cli import parser

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("start", "practitioner", "researcher", "operator", "how-it-works", "faq", "challenge")
TEXTS = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in GUIDES}
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


def commands(text: str) -> list[str]:
    """The lines of indented blocks that begin with our command, continued ones joined."""
    joined = text.replace("\\\n", " ")
    return re.findall(r"^    tunefree (.+?)(?: {2,}#.*)?$", joined, flags=re.MULTILINE)


@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_can_be_typed(guide: str) -> None:
    for command in commands(TEXTS[guide]):
        parser().parse_args(shlex.split(command))


def test_there_are_commands_to_type() -> None:
    assert sum(len(commands(text)) for text in TEXTS.values()) >= 15
