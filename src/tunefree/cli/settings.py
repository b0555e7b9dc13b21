"""The flags that commands on many runs share: every setting of a run, and where its files go."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree import config
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.config import Config
    from tunefree.record import Facts

OF_TABLES = {  # of a CSV table of one's own: key -> flags, help
    "data.target": ("--target-column --target", "of a CSV table: the column to learn"),
    "data.client_column": (
        "--client-column",
        "of a CSV table: the column that says whose a row is",
    ),
}
OWN = ("algorithm.name", "run.seed", "run.fleet", "run.workers", "run.out")  # the command's own


def add_to(command: argparse.ArgumentParser, seeds: Sequence[int]) -> None:
    """Every setting of a run, except those that differ between runs."""
    command.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=list(seeds),
        metavar="X",
        help=f"a run for each (default {' '.join(map(str, seeds))})",
    )
    command.add_argument("--settings", type=Path, metavar="FILE.toml", help="as for `tunefree run`")
    add_flags(command, without=OWN)
    command.add_argument(
        "--workers", type=int, default=0, metavar="X", help="runs at once; 0 is one per core"
    )
    command.add_argument(
        "--out", default="", metavar="DIR", help="folder of the run files; by default in runs/"
    )


def add_flags(command: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """The flags are the settings that config knows."""
    for key, kind, f in config.flags():
        if key in without:
            continue
        names, about = f.metadata["flag"].split(), f.metadata["help"]
        default = f" (default {f.default})" if f.default else ""
        if kind == "bool":
            command.add_argument(*names, dest=key, action="store_const", const=True, help=about)
        else:
            to = {"int": int, "float": float}.get(kind, str)
            command.add_argument(*names, dest=key, type=to, metavar="X", help=f"{about}{default}")
    add_table_flags(command)
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the TOML file"
    )


def add_table_flags(command: argparse.ArgumentParser) -> None:
    """Those of a CSV table, by all names that are free in this command."""
    for key, (names, about) in OF_TABLES.items():
        free = [name for name in names.split() if name not in command._option_string_actions]
        command.add_argument(*free, dest=key, metavar="X", help=about)


def flags_given(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that were typed as flags, by key."""
    keys = [*(key for key, *_ in config.flags()), *OF_TABLES]
    found = {key: getattr(args, key, None) for key in keys if key not in without}
    return {key: value for key, value in found.items() if value is not None}


def settings_of(args: argparse.Namespace) -> Config:
    """What all runs share."""
    given = flags_given(args, without=OWN) | dict(
        config.parse_assignment(each) for each in args.set
    )
    wrong = [key for key in OWN if key in given]
    if wrong:
        raise ConfigError(f"--set {wrong[0]} has no place here, where runs differ in it")
    for flag, value in (("--workers", args.workers), ("--seeds", min(args.seeds))):
        if value < 0:
            raise ConfigError(f"{flag} {value} is too small; it must be at least 0")
    return load(args.settings, given)


def load(path: Path | None, given: dict[str, object]) -> Config:
    """The settings of a file and those that were typed, with what follows from one's own files."""
    settings = with_data(path, given)
    if not settings.model.start:
        return settings
    from tunefree.api import with_start

    return with_start(settings)


def with_data(path: Path | None, given: dict[str, object]) -> Config:
    """The settings of a file and those that were typed, with what follows from data of one's own.

    Its fingerprint is kept, so that no run goes on, or counts as played, with other samples.
    Clients that it names are the clients, unless others are asked for.
    """
    from tunefree.data.own import is_own

    section = config.read(path).get("data", {})
    told = {f"data.{key}": value for key, value in section.items()} | given
    name = str(told.get("data.name", ""))
    if not is_own(name):
        return config.load(path, given)
    from tunefree.data import own, sources

    config.load(path, given)  # wrong settings are said before much is read
    known = {f.name for f in fields(config.DataSettings)}
    options = {
        key.removeprefix("data."): value
        for key, value in told.items()
        if key.startswith("data.") and key.removeprefix("data.") not in known
    }
    data = sources.load(name, str(told.get("data.dir", "")) or None, **options)
    follows: dict[str, object] = {"data.fingerprint": own.fingerprint(data)}
    if data.groups is not None:
        follows["data.partition"] = "natural"
    elif data.classes is None:
        follows["data.partition"] = "iid"  # there are no labels to deal out by
    partition = told.get("data.partition", follows.get("data.partition"))
    if data.groups is not None and partition == "natural":
        follows["system.N"] = len(set(data.groups.tolist()))
    system = {f"system.{key}": value for key, value in config.read(path).get("system", {}).items()}
    return config.load(path, follows | system | told)


def data_words(facts: Facts) -> str:
    """How the data of a run is typed again."""
    options = facts.config.get("data", {}).get("options", {})
    words = ["--data", facts.data]
    for key, value in options.items():
        flags, _ = OF_TABLES.get(f"data.{key}", ("", ""))
        if key != "fingerprint":
            words += [flags.split()[0], value] if flags else ["--set", f"data.{key}={value}"]
    return shlex.join(map(str, words))


def folder_of(args: argparse.Namespace, kind: str, what: object) -> Path:
    """The folder given, or one named by what is asked, so that the same command finds it again."""
    if args.out:
        return Path(args.out)
    mark = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return Path("runs") / f"{kind.replace(':', '.')}-{mark}"  # a method of one's own has a colon


def interrupted(folder: Path) -> int:
    print(
        f"\ninterrupted; what was done is kept in {folder}, and the same command goes on from it",
        file=sys.stderr,
    )
    return 130
