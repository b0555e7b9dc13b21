"""The README's commands work, and the project's links lead somewhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import tunefree.cli
import tunefree_evidence.cli
from tests.one_process import in_one_process
from tests.site.commands import SHORTER, commands, shorter
from tests.variants import METHODS
from tunefree_evidence.challenge import folder, page
from tunefree_evidence.claims import evidence
from tunefree_evidence.claims import folder as verdicts

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = README.split("```")[1::2]
SESSIONS = [found for block in BLOCKS if (found := commands(block, indent=""))]
PROGRAMS = {"tunefree": tunefree.cli.main, "tunefree-evidence": tunefree_evidence.cli.main}
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

# Endless, too long, or run by other tests: only parsed.
NOT_RUN = "tunefree flower up"


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session[0][:30])
def test_commands(session: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a block run in one folder: later ones use the files of earlier ones."""
    monkeypatch.chdir(tmp_path)
    in_one_process(monkeypatch)
    if "tunefree runs" in session:  # it lists the runs of the first block
        assert tunefree.cli.main(["run", *SHORTER["tunefree run"]]) == 0
    for command in session:
        program, *words = [*shlex.split(command), *shorter(command)]
        if command.startswith(NOT_RUN):
            tunefree.cli.parser().parse_args(words)
        else:
            assert PROGRAMS[program](words) == 0, command
    pages = [words.split()[-1] for words in session if words.startswith("tunefree report")]
    assert all((tmp_path / page).stat().st_size > 10_000 for page in pages)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples(example: str) -> None:
    namespace: dict[str, object] = {}
    exec(example, namespace)
    assert namespace["run"]


def test_there_are_commands_and_examples() -> None:
    assert sum(map(len, SESSIONS)) == len(commands(README, indent="")) >= 10
    assert any(command.startswith("tunefree report") for each in SESSIONS for command in each)
    assert EXAMPLES


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_its_headline_is_what_the_challenge_found() -> None:
    found = folder.read(ROOT / "docs" / "evidence", "small")
    assert found is not None
    assert " ".join(page.headline(found).split()) in " ".join(README.split())


def test_it_sums_up_the_claims_as_decided() -> None:
    rows = verdicts.read(ROOT / "docs" / "evidence")
    assert evidence.headline(rows) in " ".join(README.split())


def test_every_algorithm_has_a_card() -> None:
    assert [name for name in METHODS if not (ROOT / "cards" / f"{name}.md").is_file()] == []


def test_configured_paths_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    paths = [
        *project["tool"]["pytest"]["ini_options"]["testpaths"],
        *project["tool"]["mypy"]["files"],
    ]
    paths += [
        pattern.lstrip("!") for pattern in project["tool"]["ruff"]["lint"]["per-file-ignores"]
    ]
    assert [path for path in paths if not list(ROOT.glob(path))] == []
