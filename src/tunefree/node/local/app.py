"""An app that is a folder here: its run config, and its ServerApp's check of it."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp
from torch import nn

from tunefree.errors import ConfigError
from tunefree.flower.run_file import check_settings
from tunefree.flower.serverapp import OurServerApp
from tunefree.node.pairs import flat, read_toml


def run_config(app: Path, given: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """The run config of an app in a federation with so many nodes, changed by what is given."""
    usual = dict(flat(section(app, "config")))
    for key in given:
        if (now := key.replace("-", "_")) != key and now in usual:
            raise ConfigError(f"--run-config {key} is now called {now}", f"write {now}")
        if key not in usual:  # Flower allows no other
            raise ConfigError(
                f"--run-config {key} is not among the keys of [tool.flwr.app.config] in "
                f"'{app / 'pyproject.toml'}', and Flower lets a run change only those; add it there"
            )
    return usual | ({"clients": nodes} if "clients" in usual else {}) | dict(given)


def section(app: Path, name: str) -> Mapping[str, Any]:
    """A section below [tool.flwr.app] in an app's pyproject.toml."""
    tree = read_toml(app / "pyproject.toml")
    try:
        return dict(tree["tool"]["flwr"]["app"].get(name, {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"'{app}/pyproject.toml' has no [tool.flwr.app] section with a [tool.flwr.app.config]; "
            "`tunefree flower new` writes an app that has"
        ) from None


def check(app: Path, config: Mapping[str, Any], folder: Path) -> int | None:
    """Refuse settings that the app cannot run, or a run that was started there cannot resume with.

    Returns the rounds; None if the ServerApp is not ours, and its settings are not ours to check.
    """
    reference = str(section(app, "components").get("serverapp"))
    with errors_of(app, f"serverapp = '{reference}'"):
        found = load(app, reference)
    if not isinstance(found, ServerApp):
        raise ConfigError(f"serverapp = '{reference}' of '{app}' is not a Flower ServerApp")
    if not isinstance(found, OurServerApp):
        return None

    def build_model() -> nn.Module:
        with errors_of(app, "build_model()"):
            return found.build_model()

    return check_settings(config, folder, build_model, found.loss, found.algorithm)


def load(app: Path, reference: str) -> object:
    """The object that `package.module:name` refers to in an app."""
    if str(app) not in sys.path:
        sys.path.insert(0, str(app))
    module, _, name = reference.partition(":")
    found: object = attrgetter(name)(importlib.import_module(module))
    return found


@contextmanager
def errors_of(app: Path, part: str) -> Iterator[None]:
    """Turn any error of an app's own code into one sentence, with the line that raised it."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        path = Path(last.filename)
        known = path.is_relative_to(app) and not isinstance(error, SyntaxError)  # it names its line
        at = f" at {path}, line {last.lineno}" if known else ""
        first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise ConfigError(
            f"{part} of the app '{app}' fails ({type(error).__name__}{at}: {first}); correct it"
        ) from error
