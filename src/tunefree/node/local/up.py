"""`tunefree flower up`: start a federation on this machine, run an app once, stop everything."""

from __future__ import annotations

import json
import re
import shlex
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.federation import check_settings
from tunefree.flower.live import live_path
from tunefree.flower.log import Log
from tunefree.node.local.federation import Local
from tunefree.node.versions import require
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
    refuse_inside(app, folder)
    keys = config_keys(app)
    words = options.run_config
    if words.endswith(".toml"):  # Flower takes a file or pairs, but not both
        words = " ".join(pairs(read_toml(Path(words).expanduser(), "--run-config ")))
    if "clients" in keys and not re.search(r"(^|\s)clients\s*=", words):
        words = f"clients={options.nodes} {words}".strip()
    superlink = folder.resolve() / "superlink"
    with usable(folder):
        name, rounds = (
            (run_file_name(words, keys), None) if options.stock else check(app, words, superlink)
        )
        out = superlink / name
        if rounds is not None and finished(out, rounds):
            log(
                f"the run in {out} has finished its {rounds} rounds already, so nothing was "
                "started; to continue it, raise rounds, and for a new run give another --folder"
            )
            return out
        live_path(out).unlink(missing_ok=True)
        kinds = {"stock": options.stock, "database": options.database}
        local = Local(folder, options.nodes, options.tls, options.auth, **kinds)
    secure = (
        "with TLS and node keys" if options.auth else "with TLS" if options.tls else "without TLS"
    )
    log(f"starting a SuperLink and {options.nodes} nodes in {folder}, {secure}")
    began = time.monotonic()
    with closing(local) as federation:
        with usable(folder):
            federation.start()
        run = federation.run(app, words)
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


def check(app: Path, words: str, folder: Path) -> tuple[str, int | None]:
    """Refuse settings that the app cannot run or a started run cannot resume with.

    Returns the run file and, if the ServerApp is ours, the rounds.
    """
    private = require()
    config: dict[str, Any] = private.run_config_of(app, private.parse_config("--run-config", words))
    side, rounds = getattr(private.load_server_app(app), "tunefree", None), None
    if side is not None:  # None: not our ServerApp, so its settings are not ours to check

        def build_model() -> Any:
            with private.app_errors(app, "build_model()"):
                return side.build_model()

        rounds = check_settings(config, folder, build_model, side.loss, side.algorithm)
    return str(config.get("out", "federation.sqlite")), rounds


def refuse_inside(app: Path, folder: Path) -> None:
    """Refuse a folder inside the app: Flower sends all files of an app to every node."""
    inside = [folder.resolve()] if folder.resolve().is_relative_to(app) else []
    old = app / "federation"
    if inside or (old / "superlink").exists():
        found = inside[0] if inside else old
        raise ConfigError(
            f"'{found}' is inside the app, and its keys and run files would be sent to every "
            f"node; move it out: mv {old} {default_folder(app)}"
            if not inside
            else f"--folder '{found}' is inside the app, and its keys and run files would be "
            f"sent to every node; choose another: --folder {default_folder(app)}"
        )


def default_folder(app: Path) -> Path:
    """The folder of a federation, unless --folder is given."""
    return app.with_name(f"{app.name}-federation")


def config_keys(app: Path) -> dict[str, object]:
    """The app's own run config, from its pyproject.toml."""
    tree = read_toml(app / "pyproject.toml")
    try:
        return dict(tree["tool"]["flwr"]["app"].get("config", {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"'{app}/pyproject.toml' has no [tool.flwr.app] section with a [tool.flwr.app.config]; "
            "`tunefree flower new` writes an app that has"
        ) from None


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{flag}'{path}' cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{flag}'{path}' is not valid TOML ({error})") from error


def pairs(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A run config as Flower's KEY=VALUE pairs."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from pairs(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value, default=str)}"


def run_file_name(run_config: str, keys: dict[str, object]) -> str:
    """The run file's name: from this run's config, or else from the app's."""
    for word in run_config.split():
        key, _, value = word.partition("=")
        if key == "out":
            return value.strip("'\"")
    return str(keys.get("out", "federation.sqlite"))
