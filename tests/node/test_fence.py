"""What Flower does not publish is used by `node/` alone, and `node/` by what starts nodes alone."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import tunefree.core
from tunefree.flower.transport import FASTER
from tunefree.node import NEEDS, faster

ROOT = Path(tunefree.core.__file__).parent
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
USERS = {"cli/flower.py"}  # of `node/`
SHOWN = {"_fields", "_field_defaults", "_replace", "_asdict"} | {
    "__name__",
    "__init__",
    "__traceback__",
}
FILES = sorted(ROOT.rglob("*.py"))


def imports(source: str) -> set[str]:
    """Every module that is imported anywhere in a file."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    aliases = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return modules | {alias.name for alias in aliases}


def beyond_public(source: str) -> set[str]:
    """Imports of Flower's other modules, and attributes that an object does not show."""
    hidden = {name for name in imports(source) if name.split(".")[0] == "flwr"} - PUBLIC
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            hidden |= set() if own or node.attr in SHOWN else {node.attr}
    return hidden


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_our_node_uses_what_flower_does_not_publish(file: Path) -> None:
    place, source = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    users = {name for name in imports(source) if name.startswith("tunefree.node")}
    if place.startswith("node/"):
        needs = beyond_public(source)
        assert not needs or file.stem in NEEDS, "node/__init__.py must check its names"
        return
    assert not users or place in USERS
    if any(name.split(".")[0] == "flwr" for name in imports(source)):
        assert not beyond_public(source)


def test_a_hidden_name_is_found() -> None:
    assert beyond_public("def f():\n    from flwr.common.serde import x") == {"flwr.common.serde"}
    assert beyond_public("import flwr.proto") == {"flwr.proto"}
    assert beyond_public("message.metadata._message_id") == {"_message_id"}
    assert beyond_public("message.__dict__['id'] = 1") == {"__dict__"}
    assert beyond_public("from flwr.app import Message\nself._sent") == set()


def test_up_needs_no_hidden_names_to_start() -> None:
    """So that it can fall back to Flower's own nodes where a name is gone."""
    loaded = "import sys, tunefree.node.local.up; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert "tunefree.node.local.federation" in modules
    assert not {f"tunefree.node.{name}" for name in NEEDS} & set(modules)


def test_a_server_app_finds_our_faster_replies() -> None:
    text = (ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    (offer,) = tomllib.loads(text)["project"]["entry-points"][FASTER].values()
    module, _, name = offer.partition(":")
    assert getattr(importlib.import_module(module), name) is faster
