"""`tunefree flower up`: start a federation on this machine, run an app once, stop everything."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from flwr.serverapp import ServerApp
from torch import nn

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.log import Log
from tunefree.flower.run_file import check_settings
from tunefree.flower.serverapp import OUT, OurServerApp
from tunefree.flower.status import live_path
from tunefree.node import problem
from tunefree.node.local.federation import Local
from tunefree.node.local.processes import LIST, Processes
from tunefree.node.pairs import read_pairs, read_toml
from tunefree.record import Record
from tunefree.settings import flat


class UpOptions(NamedTuple):
    """The arguments of `tunefree flower up`."""

    app: Path
    folder: Path
    nodes: int
    tls: bool = False
    auth: bool = False
    run_config: str = ""
    stock: bool = False
    database: bool = False


def up(options: UpOptions) -> Path:
    """Run the app once and return its run file; a run file that exists is resumed."""
    os.umask(0o077)  # keys, states and run files are for their owner only
    log, app, folder = Log(), options.app.resolve(), options.folder
    if not options.stock and (why := problem()):
        log(f"{why}; Flower's own nodes run instead, on which a round takes seconds longer")
        options = options._replace(stock=True)
    refuse_inside(app, folder)
    given = read_pairs("--run-config", options.run_config)
    config = run_config(app, given, options.nodes)
    if not options.stock:  # otherwise `flwr run` does this
        from tunefree.node import apps

        apps.check(app)
    if config.get("secure"):
        config["roster"] = str(folder.resolve() / "roster.txt")
    superlink = folder.resolve() / "superlink"
    out = superlink / str(config.get("out", OUT))
    with usable(folder):
        if (folder / LIST).exists():
            Processes(folder.resolve()).end()  # what a killed `up` left, such as a run's server
        rounds = check(app, config, superlink)
        if rounds is not None and finished(out, rounds):
            log(
                f"the run in {out} has finished its {rounds} rounds already, so nothing was "
                "started; to continue it, raise rounds, and for a new run give another --folder"
            )
            return out
        live_path(out).unlink(missing_ok=True)
        secure = bool(config.get("secure"))
        kinds = {"stock": options.stock, "database": options.database, "secure": secure}
        local = Local(folder, options.nodes, options.tls, options.auth, **kinds)
    how = "without TLS"
    if options.tls:
        how = "with TLS and node keys" if options.auth else "with TLS"
    log(f"starting a SuperLink and {options.nodes} nodes in {folder}, {how}")
    began = time.monotonic()
    with closing(local) as federation:
        with usable(folder):
            federation.start()
        run = federation.run(app, config)
        took = time.monotonic() - began
        log(f"SuperLink ready and run started after {took:.1f} s; the app is loading")
        try:
            while not run.over():
                federation.tend()
                time.sleep(0.25)
        finally:
            failure = run.end()
    if failure:
        again = f"; to resume the run: {command_for(options)}" if out.exists() else ""
        raise FleetError(f"{reason(out) or failure}; logs are in {folder}{again}")
    if not out.exists():
        raise FleetError(f"the app wrote no run file '{out}'; see {folder}/*.log")
    return out


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors on this folder into one sentence."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"--folder '{folder}' cannot be used ({error.strerror or error}); choose another folder"
        ) from error


def reason(out: Path) -> str:
    """Why the ServerApp stopped, if it wrote that down."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        page = json.loads(live_path(out).read_text())
        return str(page["why"])
    return ""


def command_for(options: UpOptions) -> str:
    """The command with these options, all of which a resumed run needs again."""
    words = ["tunefree", "flower", "up", str(options.app), "--nodes", str(options.nodes)]
    words += [
        f"--{name}" for name in ("tls", "auth", "stock", "database") if getattr(options, name)
    ]
    if options.folder != default_folder(options.app.resolve()):
        words += ["--folder", str(options.folder)]
    if options.run_config:
        words += ["--run-config", options.run_config]
    return shlex.join(words)


def finished(out: Path, rounds: int) -> bool:
    """Whether the run in this file has finished, and was to have this many rounds."""
    if not out.exists():
        return False
    with closing(Record.open(out)) as record:
        return record.state == "done" and record.facts().system.get("T") == rounds


def refuse_inside(app: Path, folder: Path) -> None:
    """Refuse a folder inside the app: Flower sends all files of an app to every node."""
    sent = "is inside the app, and its keys and run files would be sent to every node"
    if folder.resolve().is_relative_to(app):
        raise ConfigError(
            f"--folder '{folder.resolve()}' {sent}; choose another: --folder {default_folder(app)}"
        )
    old = app / "federation"
    if (old / "superlink").exists():
        raise ConfigError(f"'{old}' {sent}; move it out: mv {old} {default_folder(app)}")


def default_folder(app: Path) -> Path:
    """The folder of a federation, unless --folder is given."""
    return app.with_name(f"{app.name}-federation")


def run_config(app: Path, given: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """The run config of an app in a federation with so many nodes, changed by what is given."""
    usual = flat(section(app, "config"))
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
