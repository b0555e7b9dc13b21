"""Flags that commands share: every setting of a run, and the folder of its files."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tunefree.errors import NOTHING, ConfigError
from tunefree.settings import FIELDS, TABLES, Settings, parse_assignment

if TYPE_CHECKING:
    from tunefree.record import Facts

OF_TABLES = {  # options of the user's own CSV table that have flags -> flags, help
    "data_option.target": ("--target-column --target", "of a CSV table: the column to learn"),
    "data_option.client_column": (
        "--client-column",
        "of a CSV table: the column with each row's client",
    ),
}
NOT_REPEATED = (  # by a run with another method: what is its own, or follows
    *("algorithm", "compressor", "explicit_steps", "option", "data"),
    *("data_fingerprint", "start_fingerprint", "out", "fleet", "workers"),
)
OWN = ("algorithm", "seed", "fleet", "workers", "out")  # the command's own


def names_of(setting: str) -> list[str]:
    """The flags of a setting or an option; empty for those that only `--set` sets.

    >>> names_of("per_round"), names_of("option.eta")
    (['--per-round', '--buffer'], [])
    """
    if setting in OF_TABLES:
        return OF_TABLES[setting][0].split()
    about = FIELDS[setting].metadata if setting in FIELDS else {}
    return [f"--{setting.replace('_', '-')}", *about["also"].split()] if about.get("flag") else []


def typed(setting: str, value: object) -> str:
    """A setting as it is typed, alone or with its value.

    >>> typed("per_round", 60), typed("option.eta", 0.2), typed("clients", NOTHING)
    ('--per-round 60', '--set option.eta=0.2', '--clients')
    """
    flag = [] if isinstance(value, list | tuple) else names_of(setting)[:1]
    if value is NOTHING:
        return flag[0] if flag else f"--set {setting}"
    if not flag:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return f"--set {shlex.quote(f'{setting}={text}')}"
    return flag[0] if value is True else f"{flag[0]} {shlex.quote(str(value))}"


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
    """A flag for each setting."""
    kinds = get_type_hints(Settings)
    for name, f in FIELDS.items():
        if name in without or not names_of(name):
            continue
        about = f.metadata["help"]
        default = f" (default {f.default})" if f.default else ""
        if kinds[name] is bool:
            command.add_argument(
                *names_of(name), dest=name, action="store_const", const=True, help=about
            )
        else:
            to = {int: int, int | None: int, float: float}.get(kinds[name], str)
            command.add_argument(
                *names_of(name), dest=name, type=to, metavar="X", help=f"{about}{default}"
            )
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
    """The settings that were given as flags, by name."""
    names = [name for name in (*FIELDS, *OF_TABLES) if names_of(name) and name not in without]
    found = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that all runs share."""
    given = flags_given(args, without=OWN) | dict(parse_assignment(each) for each in args.set)
    wrong = [name for name in OWN if name in given]
    if wrong:
        raise ConfigError(f"--set {wrong[0]} cannot be used here, because the runs differ in it")
    for flag, value in (("--workers", args.workers), ("--seeds", min(args.seeds))):
        if value < 0:
            raise ConfigError(f"{flag} {value} is too small; it must be at least 0")
    from tunefree import derive

    return derive.settings(args.settings, given)


def flags_of(facts: Facts) -> str:
    """The flags of a run for another method: its settings that are not at their default."""
    from tunefree.data import sources

    stored = facts.settings
    usual = Settings().asdict() | {"model": sources.usual_model(facts.data)}
    if stored.get("local_epochs"):
        usual["local_steps"] = None  # it follows
    words = [typed("data", facts.data)]
    for name, default in usual.items():
        value = stored.get(name, default)
        ordinary = (default, Settings.model) if name == "model" else (default,)
        if name in NOT_REPEATED or value in ordinary:
            continue
        if name in TABLES:
            words += [typed(f"{name}.{key}", each) for key, each in value.items()]
        else:
            words.append(typed(name, value))
    return " ".join(words)


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
