"""Imports point one way: a package may use only what is below it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import tunefree.core

ROOT = Path(tunefree.core.__file__).parent

MAP = ROOT.parents[1] / "CONTRIBUTING.md"


class Place(NamedTuple):
    """A row of the map."""

    modules: set[str]  # of a folder, as listed there
    below: set[str]  # what it may import


def places(text: str) -> dict[str, Place]:
    """Every row of the table `where | what it holds | modules | may import`."""
    table = text.split("| where | what it holds | modules | may import |\n|---|---|---|---|\n")[1]
    rows = (row.strip("|").split("|") for row in table.split("\n\n")[0].splitlines())
    return {
        words(where).pop().rstrip("/"): Place(words(modules), words(below) | {"errors"})
        for where, _, modules, below in rows
    }


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


PLACES = places(MAP.read_text(encoding="utf-8"))
ALLOWED = {name: place.below - {name} for name, place in PLACES.items()}
MANY = ("methods", "cli")  # a file per method, a file per command

SHARED = {"local_sgd", "control"}  # what many methods share
RELATIVES = {  # methods that share more than those
    "adamasfl": ["padamfed"],
    "comparfrefl": ["parfrefl"],
    "polarfl_stateless": ["polarfl"],
}
FORBIDDEN_OUTSIDE = {"methods": {"numpy", "torch"}, "report": {"torch"}}


def imports(source: str) -> set[str]:
    """Every module named by an import, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full"
            if node.module == "tunefree":
                found |= {f"tunefree.{alias.name}" for alias in node.names}
            else:
                found.add(str(node.module))
    return found


def package(module: str) -> str:
    """The second part of tunefree.wire.message; the root itself is __init__."""
    return [*module.split("."), "__init__"][1]


def own(source: str) -> set[str]:
    return {package(name) for name in imports(source) if name.split(".")[0] == "tunefree"}


def others(source: str) -> set[str]:
    return {name.split(".")[0] for name in imports(source)} - {"tunefree"}


FILES = sorted(ROOT.rglob("*.py"))
every_file = pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))


@every_file
def test_imports_point_down(file: Path) -> None:
    here = file.relative_to(ROOT).with_suffix("").parts[0]
    assert here in ALLOWED, f"{here} is not on the map in CONTRIBUTING.md; give it a row"
    source = file.read_text()
    above = own(source) - ALLOWED[here] - {here}
    assert not above, f"{here} must not use {', '.join(sorted(above))}"
    assert not others(source) & FORBIDDEN_OUTSIDE.get(here, set())


def test_the_map_shows_every_module_and_none_besides() -> None:
    found: dict[str, set[str]] = {}
    for file in FILES:
        place, *rest = file.relative_to(ROOT).with_suffix("").parts
        inside = found.setdefault(place, set())
        if rest and rest[-1] != "__init__" and place not in MANY:
            inside.add("/".join(rest))
    assert found == {name: place.modules for name, place in PLACES.items()}


def test_the_map_runs_from_the_bottom_to_the_top() -> None:
    seen = set[str]()
    for name, below in ALLOWED.items():
        assert below <= seen, f"{name} imports what is above it"
        seen.add(name)


@pytest.mark.parametrize("file", sorted((ROOT / "methods").glob("*.py")), ids=lambda f: f.stem)
def test_an_algorithm_knows_the_contract_only(file: Path) -> None:
    source = file.read_text()
    assert others(source) <= sys.stdlib_module_names
    if file.stem not in ("__init__", "registry"):  # which name all
        assert own(source) <= {"core", "errors", "geometry", "wire", "methods"}
        siblings = {name.split(".")[-1] for name in imports(source) if package(name) == "methods"}
        assert siblings <= {*SHARED, *RELATIVES.get(file.stem, ())}


def module_of(file: Path) -> str:
    """tunefree/wire/message.py is tunefree.wire.message; a package is its __init__."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_used(source: str, known: Set[str]) -> set[str]:
    """Which of the known modules a source imports, whole or names from them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}": str(node.module) for alias in node.names}
            found |= {name if name in known else module for name, module in below.items()}
    return found & known


PACKAGES = sorted(file.parent for file in FILES if file.name == "__init__.py")


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda f: str(f.relative_to(ROOT.parent)))
def test_no_package_has_a_circle_of_imports(folder: Path) -> None:
    sources = {module_of(file): file.read_text() for file in folder.glob("*.py")}
    everywhere = {module_of(file) for file in FILES}
    graph = {
        name: modules_used(text, everywhere) & sources.keys() for name, text in sources.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_a_circle_is_found_however_it_is_written() -> None:
    known = {"tunefree.a", "tunefree.a.b", "tunefree.a.c"}
    later = "def f():\n    from tunefree.a import b, name"
    assert modules_used(later, known) == {"tunefree.a.b", "tunefree.a"}
    assert modules_used("import tunefree.a.c, os", known) == {"tunefree.a.c"}
    with pytest.raises(CycleError, match="cycle"):
        TopologicalSorter({"b": {"c"}, "c": {"b"}}).prepare()


def test_matplotlib_is_used_by_plots_alone() -> None:
    users = {file.parent for file in FILES if "matplotlib" in others(file.read_text())}
    assert users == {ROOT / "plots"}


def test_imports_are_seen_in_every_form() -> None:
    source = """
import numpy as np, tunefree.fleet.serial
from tunefree import settings
from tunefree.wire.message import bits
def later():
    from tunefree.run.engine import Run
    import torch.nn
"""
    assert own(source) == {"fleet", "settings", "wire", "run"}
    assert others(source) == {"numpy", "torch"}
    assert package("tunefree") == "__init__"
