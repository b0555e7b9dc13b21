"""The library's names and their docstrings: a change here is a change for users."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tunefree
from tests.public import public_names
from tunefree import search
from tunefree.methods.registry import REGISTRY

NAMES = [
    "OPEN",
    "About",
    "ConfigError",
    "Exchange",
    "FleetError",
    "Method",
    "Oracle",
    "Privacy",
    "RecordError",
    "Reply",
    "Run",
    "Schedule",
    "Step",
    "System",
    "TunefreeError",
    "WireError",
    "__version__",
    "check_algorithm",
    "compare",
    "load",
    "mean",
    "methods",
    "norm",
    "partition",
    "resume",
    "search",
    "spread",
    "testing",
    "train",
    "unit",
]
RULES = [
    *("iid", "dirichlet", "dirichlet_equal", "beta", "beta_literal", "beta_split"),
    *("quantity", "lognormal", "shards", "natural"),
]
KIT = [
    *("Cost", "Problem", "Trace", "agree", "check_algorithm", "cost", "quadratic", "simulate"),
]
PROTOCOLS = ("Method", "Oracle")  # a method's arguments are of its own
WITHOUT = ("OPEN", "__version__", "methods", "partition", "search", "testing")
DOCUMENTED = {
    **{name: getattr(tunefree, name) for name in NAMES if name not in WITHOUT},
    **{f"testing.{name}": getattr(tunefree.testing, name) for name in KIT},
    **{f"partition.{rule}": getattr(tunefree.partition, rule) for rule in RULES},
    "Run.resume": tunefree.Run.resume,
}


def test_these_are_the_names() -> None:
    """Whoever changes the list changes it here too, and says so in a fragment of the changelog."""
    assert tunefree.__all__ == sorted(NAMES)
    assert [name for name in NAMES if not hasattr(tunefree, name)] == []


def test_all_methods_are_public_by_their_class_names() -> None:
    assert {getattr(tunefree.methods, cls.__name__) for cls in REGISTRY.values()} == set(
        REGISTRY.values()
    )
    assert repr(tunefree.methods.FedProx(eta=0.3)) == "FedProx(eta=0.3, s=1.0, mu=0.01)"


def test_the_rules_are_those_of_the_command_line() -> None:
    named = [rule.__name__ for rule in tunefree.partition.RULES.values()]
    assert sorted(named) == sorted(RULES)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_it_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(DOCUMENTED[name]) or "")


def arguments(thing: Any) -> list[str]:
    return [name for name in inspect.signature(thing).parameters if name != "self"]


@pytest.mark.parametrize(
    "name", [name for name in DOCUMENTED if name not in PROTOCOLS and "Error" not in name]
)
def test_it_says_what_its_arguments_are(name: str) -> None:
    doc = inspect.getdoc(DOCUMENTED[name]) or ""
    section = re.split(r"\n(?:Args|Attributes):\n", doc)[-1].partition("\n\n")[0]
    told = re.findall(r"^    (\w+): \S", section, flags=re.MULTILINE)
    named = re.search(r"keyword arguments of `(train|resume)`", doc)
    elsewhere = arguments(getattr(tunefree, named[1])) if named else []
    taken = arguments(DOCUMENTED[name])
    assert sorted({*told, *elsewhere} & {*taken}) == sorted(taken)
    assert set(told) <= set(taken)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_part_of_a_protocol_says_what_it_is(name: str) -> None:
    told = re.findall(r"^    (\w+): \S", inspect.getdoc(DOCUMENTED[name]) or "", flags=re.MULTILINE)
    parts = {n: v for n, v in vars(DOCUMENTED[name]).items() if not n.startswith("_")}
    parts = {n: v for n, v in parts.items() if n not in told}
    assert len(parts) >= 5
    assert [n for n, part in parts.items() if not inspect.getdoc(part)] == []


SEARCH = Path(__file__).parents[2] / "docs" / "api" / "search.md"
KINDS = {"Grid", "Point", "Role", "Settings", "Value"}  # types, which the functions explain


def test_every_name_of_search_is_documented() -> None:
    shown = re.search(r"members: \[(.*)\]", SEARCH.read_text(encoding="utf-8"))
    assert shown is not None
    public = public_names(search) - KINDS
    assert sorted(shown[1].split(", ")) == sorted(public)
    assert [name for name in public if not getattr(search, name).__doc__] == []
