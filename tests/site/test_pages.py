"""Pages that are made from the code say all of it, and links find their pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.making import links, pages, pictures
from tests.variants import METHODS
from tunefree.cli import parser
from tunefree.settings import FIELDS, TABLES
from tunefree_evidence.cli import parser as evidence_parser

ROOT = Path(__file__).parents[2]
COMMANDS = [*pages.commands(), *pages.commands(evidence_parser(), "tunefree-evidence")]


def test_every_command_and_verb_is_found() -> None:
    words = [each[0] for each in COMMANDS]
    for name in ("run", "compare", "export", "flower node", "flower status"):
        assert f"tunefree {name}" in words
    assert {f"tunefree-evidence {name}" for name in ("challenge", "claims", "bench")} <= {*words}
    assert len(words) == len(set(words)) > 20


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_flag_stands_below_its_command(command: pages.Command) -> None:
    words, about, parsed = command
    below = pages.command_line().partition(f"\n## {words}\n")[2].partition("\n## ")[0]
    assert about
    for action in parsed._actions:
        if action.dest in ("help", "command", "verb"):
            continue
        for flag in action.option_strings or [str(action.metavar or action.dest)]:
            assert flag in below


def test_a_flag_that_comes_tomorrow_is_there_tomorrow() -> None:
    tomorrow = parser()
    tomorrow.add_argument("--moon", metavar="X", default=7, help="its phase")
    action = pages.arguments(tomorrow)[-1]
    assert (pages.called(action), pages.meaning(action)) == ("--moon X", "its phase (default 7)")


def test_every_setting_is_there_with_what_it_means() -> None:
    text = pages.settings()
    for name, f in FIELDS.items():
        if name not in TABLES:
            line = next(x for x in text.splitlines() if x.startswith(f"| `{name}` |"))
            assert f.metadata["help"]
            assert pages.without_bars(f.metadata["help"]) in line
    assert "| `at_least` |" in text


def test_every_method_stands_once_in_the_overview_with_its_cost() -> None:
    groups = pages.families()
    assert sorted(pages.names_of(groups.values())) == sorted(METHODS)
    assert groups[pages.OURS] == ["polarfl", "polarfl_stateless"]
    assert len(groups[pages.SIX]) == 6
    assert all(groups.values())
    text = pages.overview()
    for name in METHODS:
        assert text.count(f"({name}.md)") == 1
    assert "| `padamfed_vr` | **nothing** | 3d | 3d | d |" in text
    assert "| `fedavg` | eta | d | d | - |" in text


@pytest.mark.parametrize(
    ("page", "link", "led"),
    [
        ("flower.md", "../deploy", "deploy.md"),
        ("how-it-works.md", "../cards/polarfl.md#why", "methods/polarfl.md#why"),
        ("methods/polarfl.md", "../docs/unequal-clients.md", "../unequal-clients.md"),
        ("benchmarks.md", "../../docs/flower.md#measured", "flower.md#measured"),
        ("benchmarks.md", "bench-A.png", "benchmarks/bench-A.png"),
        ("api/training.md", "../python.md", "../python.md"),
        ("python.md", "https://example.org", "https://example.org"),
        ("python.md", "#compare", "#compare"),
    ],
)
def test_links_lead_to_pages(page: str, link: str, led: str) -> None:
    assert links.for_site(f"see [this]({link}).", page) == f"see [this]({led})."


def test_bars_in_the_code_of_a_table_are_not_escaped() -> None:
    assert links.for_site(r"| `a\|b` | c\|d |", "bits.md") == r"| `a|b` | c\|d |"


def test_the_pictures_are_those_that_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = {path.name for path in pictures.draw_all(tmp_path)}
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    assert drawn == {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    assert all(f"](pictures/{name})" in page for name in drawn)
