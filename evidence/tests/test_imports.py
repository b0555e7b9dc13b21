"""The evidence uses nothing of tunefree but its public names: that is the test of our API."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tunefree_evidence
from tests.public import public_names

PUBLIC = (
    *("tunefree", "tunefree.core", "tunefree.data", "tunefree.errors", "tunefree.geometry"),
    *("tunefree.methods", "tunefree.methods.control", "tunefree.methods.local_sgd"),
    *("tunefree.models", "tunefree.plots", "tunefree.record", "tunefree.report"),
    *("tunefree.search", "tunefree.testing", "tunefree.wire"),
)
ROOT = Path(tunefree_evidence.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
NAMES = {name: public_names(importlib.import_module(name)) for name in PUBLIC}


def private_names(source: str) -> Iterator[str]:
    """What a source imports of tunefree that is not public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (
                each.name
                for each in node.names
                if each.name.split(".")[0] == "tunefree" and each.name not in PUBLIC
            )
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tunefree":
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                if whole not in PUBLIC and each.name not in NAMES.get(str(node.module), ()):
                    yield whole


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_import_is_public(file: Path) -> None:
    assert list(private_names(file.read_text(encoding="utf-8"))) == []


def test_private_names_are_found_however_they_are_imported() -> None:
    source = """
import tunefree.wire.codec, tunefree.search
from tunefree import train, fleet, models
from tunefree.search import plan, batch
from tunefree.record.file import Record
def later():
    from tunefree.data.sources import load
"""
    assert sorted(private_names(source)) == [
        *("tunefree.data.sources.load", "tunefree.fleet", "tunefree.record.file.Record"),
        *("tunefree.search.batch", "tunefree.wire.codec"),
    ]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_say_what_they_are_and_have_what_they_name(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []
