"""`tunefree flower up`: start a federation on this machine, run an app once, stop everything."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.log import Log
from tunefree.flower.serverapp import OUT
from tunefree.flower.status import live_path
from tunefree.node import problem
from tunefree.node.local.app import check, run_config
from tunefree.node.local.federation import Local
from tunefree.node.pairs import read_pairs
from tunefree.record import Record


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
    superlink = folder.resolve() / "superlink"
    out = superlink / str(config.get("out", OUT))
    with usable(folder):
        rounds = check(app, config, superlink)
        if rounds is not None and finished(out, rounds):
            log(
                f"the run in {out} has finished its {rounds} rounds already, so nothing was "
                "started; to continue it, raise rounds, and for a new run give another --folder"
            )
            return out
        live_path(out).unlink(missing_ok=True)
        local = Local(
            folder,
            options.nodes,
            options.tls,
            options.auth,
            stock=options.stock,
            database=options.database,
        )
    secure = "without TLS"
    if options.tls:
        secure = "with TLS and node keys" if options.auth else "with TLS"
    log(f"starting a SuperLink and {options.nodes} nodes in {folder}, {secure}")
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
    with suppress(OSError, ValueError):
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
