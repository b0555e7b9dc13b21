"""One command: a federation on this machine, one run of an app in it, and everything down again."""

from __future__ import annotations

import signal
import subprocess
import tomllib
from contextlib import closing
from pathlib import Path

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.local.federation import STOP, Local, end_group


def up(app: Path, folder: Path, nodes: int, tls: bool, auth: bool, run_config: str = "") -> Path:
    """The run file, after the run; with a run file that exists, its run goes on."""
    keys = config_keys(app)
    given = [f"clients={nodes}"] if "clients" in keys and "clients=" not in run_config else []
    with closing(Local(folder, nodes, tls, auth)) as federation:
        federation.start()
        run = federation.run(app, " ".join([*given, run_config]).strip())
        try:
            while True:
                try:
                    code = run.wait(1)
                    break
                except subprocess.TimeoutExpired:
                    federation.tend()
        finally:
            end_group(run, signal.SIGINT)
            try:
                run.wait(STOP)
            except subprocess.TimeoutExpired:
                end_group(run, signal.SIGKILL)
    out = federation.folder / "superlink" / chosen(run_config, keys)
    if not out.exists():
        raise FleetError(f"no run came of it (flwr run ended with {code}); see {folder}/*.log")
    return out


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
