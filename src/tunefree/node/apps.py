"""Apps as Flower bundles, checks, installs and loads them."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import click
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.config import get_project_config
from flwr.supercore.logger import update_console_handler
from flwr.supercore.task_identity import TaskIdentity

from tunefree.errors import ConfigError

HASH = re.compile(r"[0-9a-f]{64}\b")


class App(NamedTuple):
    """An app that is installed here, and its run config."""

    fab_id: str
    version: str
    fab_hash: str
    run_config: dict[str, Any]
    series: int


def check(app: Path) -> None:
    """Refuse an app whose pyproject.toml Flower does not accept."""
    try:
        get_project_config(app)
    except (ValueError, OSError) as error:
        why = "; ".join(line.strip(" -") for line in str(error).splitlines()[1:]) or str(error)
        raise ConfigError(f"Flower does not accept '{app}/pyproject.toml' ({why})") from error


def bundle(app: Path) -> bytes:
    """An app as Flower sends it to the nodes."""
    from flwr.cli.build import build_fab_from_disk

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by Flower's own dependencies
        try:
            return bytes(build_fab_from_disk(app))
        except (click.ClickException, ValueError, OSError) as error:
            raise ConfigError(f"Flower cannot bundle the app '{app}' ({error})") from error


def hashes_in(approved: Sequence[str]) -> set[str]:
    """The hashes among these words, and those that begin a line of the files among them."""
    found = set()
    for word in approved:
        if HASH.fullmatch(word):
            found.add(word)
            continue
        try:
            lines = Path(word).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--approve '{word}' is neither a hash, which `tunefree flower hash APP` prints, "
                f"nor a file that can be read ({getattr(error, 'strerror', error)})"
            ) from error
        found |= {match[0] for line in lines if (match := HASH.match(line))}
    return found


def install(bundle: bytes) -> None:
    from flwr.cli.install import install_from_fab

    with redirect_stdout(io.StringIO()):
        install_from_fab(bundle, skip_prompt=True)


def load_client_app(app: App) -> ClientApp:
    from flwr.clientapp.utils import get_load_client_app_fn

    load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    return load(app.fab_id, app.version, app.fab_hash)


def context_of(run: int, node: int, node_config: dict[str, Any], app: App) -> Context:
    """The context that an app gets for a run on a node, which this process now works for."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, 0
    return Context(
        run_id=run,
        node_id=node,
        node_config=node_config,
        state=RecordDict(),
        run_config=app.run_config,
        series_id=app.series,
    )


def plain_log() -> None:
    """Print Flower's own log lines with their time and without colours."""
    update_console_handler(timestamps=True, colored=False)
