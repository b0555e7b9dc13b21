"""The library's names and their docstrings: a change here is a change for users."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import tunefree

NAMES = [
    "About",
    "Algorithm",
    "ConfigError",
    "Exchange",
    "FleetError",
    "Oracle",
    "RecordError",
    "Reply",
    "Run",
    "Schedule",
    "System",
    "TunefreeError",
    "WireError",
    "__version__",
    "check_algorithm",
    "compare",
    "load",
    "mean",
    "norm",
    "partition",
    "resume",
    "spread",
    "train",
    "unit",
]
RULES = [
    *("iid", "dirichlet", "dirichlet_equal", "beta", "beta_literal", "beta_split"),
    *("quantity", "lognormal", "shards", "natural"),
]
PROTOCOLS = ("Algorithm", "Oracle")
DOCUMENTED = {
    **{name: getattr(tunefree, name) for name in NAMES if name not in ("__version__", "partition")},
    **{f"partition.{rule}": getattr(tunefree.partition, rule) for rule in RULES},
    "Run.resume": tunefree.Run.resume,
}


def test_these_are_the_names() -> None:
    """Whoever changes the list changes it here too, and says so in a fragment of the changelog."""
    assert tunefree.__all__ == NAMES
    assert [name for name in NAMES if not hasattr(tunefree, name)] == []


def test_the_rules_are_those_of_the_command_line() -> None:
    named = [rule.split.__name__ for rule in tunefree.partition.RULES.values()]
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
    elsewhere = arguments(tunefree.train) if "keyword arguments of `train`" in doc else []
    taken = arguments(DOCUMENTED[name])
    assert sorted({*told, *elsewhere} & {*taken}) == sorted(taken)
    assert set(told) <= set(taken)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_part_of_a_protocol_says_what_it_is(name: str) -> None:
    parts = {n: v for n, v in vars(DOCUMENTED[name]).items() if not n.startswith("_")}
    assert len(parts) >= 5
    assert [n for n, part in parts.items() if not inspect.getdoc(part)] == []
