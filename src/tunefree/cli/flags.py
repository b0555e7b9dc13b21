"""Flags that commands share: every setting of a run, and the folder of its files."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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

OF_TABLES = {  # of the user's own CSV table: key -> flags, help
    "data.target": ("--target-column --target", "of a CSV table: the column to learn"),
    "data.client_column": (
        "--client-column",
        "of a CSV table: the column with each row's client",
    ),
}
NOT_REPEATED = (  # by a run with another method: what is its own, or follows
    *("algorithm.name", "algorithm.compressor", "algorithm.explicit_steps"),
    *("data.name", "data.fingerprint", "model.fingerprint"),
    *("run.out", "run.fleet", "run.workers"),
)
OWN = ("algorithm.name", "run.seed", "run.fleet", "run.workers", "run.out")  # the command's own


def add_to(command: argparse.ArgumentParser, seeds: Sequence[int]) -> None:
    """Every setting of a run, except those that differ between runs."""
    command.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=list(seeds),
        metavar="X",
        help=f"one run for each (default {' '.join(map(str, seeds))})",
    )
    command.add_argument(
        "--settings", type=Path, metavar="FILE.toml", help="a file, as for `tunefree run`"
    )
    add_flags(command, without=OWN)
    command.add_argument(
        "--workers", type=int, default=0, metavar="X", help="runs at once; 0 is one per core"
    )
    command.add_argument(
        "--out", default="", metavar="DIR", help="folder of the run files (default: one in runs/)"
    )


def add_flags(command: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """A flag for each setting in config."""
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
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key of a settings file"
    )


def add_table_flags(command: argparse.ArgumentParser) -> None:
    """The flags of a CSV table, by all names that this command has not taken."""
    for key, (names, about) in OF_TABLES.items():
        free = [name for name in names.split() if name not in command._option_string_actions]
        command.add_argument(*free, dest=key, metavar="X", help=about)


def flags_given(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that were given as flags, by key."""
    keys = [*(key for key, *_ in config.flags()), *OF_TABLES]
    found = {key: getattr(args, key, None) for key in keys if key not in without}
    return {key: value for key, value in found.items() if value is not None}


def settings_of(args: argparse.Namespace) -> Config:
    """The settings that all runs share."""
    given = flags_given(args, without=OWN) | dict(
        config.parse_assignment(each) for each in args.set
    )
    wrong = [key for key in OWN if key in given]
    if wrong:
        raise ConfigError(f"--set {wrong[0]} cannot be used here, because the runs differ in it")
    for flag, value in (("--workers", args.workers), ("--seeds", min(args.seeds))):
        if value < 0:
            raise ConfigError(f"{flag} {value} is too small; it must be at least 0")
    return load(args.settings, given)


def load(path: Path | None, given: dict[str, object]) -> Config:
    """The settings of a file and of flags, and those that follow from the user's own files."""
    settings = with_data(path, given)
    if not settings.model.start:
        return settings
    from tunefree.run.assemble import with_start

    return with_start(settings)


def with_data(path: Path | None, given: dict[str, object]) -> Config:
    """The settings of a file and of flags, and those that follow from the user's own data.

    The data's fingerprint is a setting, so that no run resumes, or counts as finished, with other
    samples. If the data names its clients, they are used unless another partition is given.
    """
    from tunefree.data.own import is_own

    section = config.read(path).get("data", {})
    chosen = {f"data.{key}": value for key, value in section.items()} | given
    name = str(chosen.get("data.name", ""))
    if not is_own(name):
        return config.load(path, given)
    from tunefree.data import own, sources

    config.load(path, given)  # report wrong settings before reading much
    known = {f.name for f in fields(config.DataSettings)}
    options = {
        key.removeprefix("data."): value
        for key, value in chosen.items()
        if key.startswith("data.") and key.removeprefix("data.") not in known
    }
    data = sources.load(name, str(chosen.get("data.dir", "")) or None, **options)
    follows: dict[str, object] = {"data.fingerprint": own.fingerprint(data)}
    if data.groups is not None:
        follows["data.partition"] = "natural"
    elif data.classes is None:
        follows["data.partition"] = "iid"  # there are no labels to partition by
    partition = chosen.get("data.partition", follows.get("data.partition"))
    if data.groups is not None and partition == "natural":
        follows["system.N"] = len(set(data.groups.tolist()))
    system = {f"system.{key}": value for key, value in config.read(path).get("system", {}).items()}
    return config.load(path, follows | system | chosen)


def flags_of(facts: Facts) -> str:
    """The flags of a run for another method: its settings that are not at their default."""
    from tunefree.data import own
    from tunefree.data.sources import SOURCES

    source = SOURCES.get(facts.data)
    usual = {"model.name": source.model if source else own.MODEL}
    words = ["--data", facts.data]
    for section, cls in config.SECTIONS.items():
        stored = facts.config.get(section, {})
        options = {} if section == "algorithm" else stored.get("options", {})
        known = {f.name: f for f in fields(cls) if f.name != "options"}
        changed = {
            name: stored[name]
            for name, f in known.items()
            if name in stored and stored[name] != f.default
        }
        for name, value in (*changed.items(), *options.items()):
            key = f"{section}.{name}"
            if key not in NOT_REPEATED and usual.get(key) != value:
                field = known.get(name)
                words += flag_words(key, value, field.metadata.get("flag", "") if field else "")
    return shlex.join(words)


def flag_words(key: str, value: object, flag: str) -> list[str]:
    """A setting as it is typed: by its flag if it has one."""
    flag = flag or OF_TABLES.get(key, ("", ""))[0]
    if not flag or isinstance(value, list | tuple):
        return ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return [flag.split()[0], *([] if value is True else [str(value)])]


def folder_of(args: argparse.Namespace, kind: str, what: object) -> Path:
    """The given folder, or one named after the command, so that the same command finds it."""
    if args.out:
        return Path(args.out)
    mark = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return Path("runs") / f"{kind.replace(':', '.')}-{mark}"  # the user's own method has a colon


def check_out(folder: Path) -> None:
    """Refuse a folder that cannot be created or written to, before anything is run."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "no permission" if nearest.is_dir() else f"'{nearest}' is a file"
        raise ConfigError(
            f"--out '{folder}' cannot be written ({why}); choose a folder that you may write to"
        )


def interrupted(folder: Path) -> int:
    print(
        f"\ninterrupted; everything so far is saved in {folder}; the same command resumes it",
        file=sys.stderr,
    )
    return 130
