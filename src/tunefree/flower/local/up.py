"""One command: a federation on this machine, one run of an app in it, and everything down again."""

from __future__ import annotations

import json
import re
import time
import tomllib
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.federation import check_settings
from tunefree.flower.live import live_path
from tunefree.flower.local.federation import Local
from tunefree.flower.says import Says
from tunefree.flower.versions import require


class Wanted(NamedTuple):
    """What `tunefree flower up` was asked for."""

    app: Path
    folder: Path
    nodes: int
    tls: bool = False
    auth: bool = False
    run_config: str = ""
    stock: bool = False
    database: bool = False


def up(wanted: Wanted) -> Path:
    """The run file, after the run; with a run file that exists, its run goes on."""
    says, app = Says(), wanted.app.resolve()
    refuse_inside(app, wanted.folder)
    keys = config_keys(app)
    words = wanted.run_config
    if "clients" in keys and not re.search(r"(^|\s)clients\s*=", words):
        words = f"clients={wanted.nodes} {words}".strip()
    superlink = wanted.folder.resolve() / "superlink"
    out = superlink / (chosen(words, keys) if wanted.stock else check(app, words, superlink))
    live_path(out).unlink(missing_ok=True)
    secure = (
        "with TLS and node keys" if wanted.auth else "with TLS" if wanted.tls else "without TLS"
    )
    says(f"starting a SuperLink and {wanted.nodes} nodes in {wanted.folder}, {secure}")
    began = time.monotonic()
    kinds = {"stock": wanted.stock, "database": wanted.database}
    with closing(
        Local(wanted.folder, wanted.nodes, wanted.tls, wanted.auth, **kinds)
    ) as federation:
        federation.start()
        run = federation.run(app, words)
        took = time.monotonic() - began
        says(f"the SuperLink listens and the run has begun, after {took:.1f} s; the app is loading")
        try:
            while not run.over():
                federation.tend()
                time.sleep(0.25)
        finally:
            failure = run.end()
    if failure:
        raise FleetError(f"{told(out) or failure}; logs are in {wanted.folder}{again(out)}")
    if not out.exists():
        raise FleetError(f"no run came of it; see {wanted.folder}/*.log")
    return out


def told(out: Path) -> str:
    """Why the server's half of our app stopped, if it said so."""
    with suppress(OSError, ValueError):
        page = json.loads(live_path(out).read_text())
        return str(page["why"])
    return ""


def again(out: Path) -> str:
    return "; the same command goes on with the run" if out.exists() else ""


def check(app: Path, words: str, folder: Path) -> str:
    """Refuse what the app cannot run, and what does not fit a run that has begun; the run file."""
    private = require()
    config: dict[str, Any] = private.run_config_of(app, private.parse_config("--run-config", words))
    side = getattr(private.load_server_app(app), "tunefree", None)
    if side is not None:  # or it is another's app, which knows its settings itself
        check_settings(config, folder, side.build_model, side.loss, side.algorithm)
    return str(config.get("out", "federation.sqlite"))


def refuse_inside(app: Path, folder: Path) -> None:
    """Keys, certificates and run files must not lie where they travel to the nodes in a bundle."""
    inside = [folder.resolve()] if folder.resolve().is_relative_to(app) else []
    old = app / "federation"
    if inside or (old / "superlink").exists():
        found = inside[0] if inside else old
        raise ConfigError(
            f"'{found}' lies inside the app, and its keys and run files would be sent to every "
            f"node; keep it outside: mv {old} {beside(app)}"
            if not inside
            else f"--folder '{found}' lies inside the app, and its keys and run files would be "
            f"sent to every node; choose another: --folder {beside(app)}"
        )


def beside(app: Path) -> Path:
    """Where a federation lies if nothing else is said."""
    return app.with_name(f"{app.name}-federation")


def config_keys(app: Path) -> dict[str, object]:
    """The run config that an app comes with."""
    try:
        tree = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        keys: dict[str, object] = tree["tool"]["flwr"]["app"].get("config", {})
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"'{app}/pyproject.toml' describes no Flower app ({error}); `tunefree flower new` "
            "makes one"
        ) from error
    return keys


def chosen(run_config: str, keys: dict[str, object]) -> str:
    """The run file's name: what is given for this run, or what the app comes with."""
    for word in run_config.split():
        key, _, value = word.partition("=")
        if key == "out":
            return value.strip("'\"")
    return str(keys.get("out", "federation.sqlite"))
