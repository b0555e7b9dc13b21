"""The flags that commands on many runs share: every setting of a run, and where its files go."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree import config
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.config import Config

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
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the TOML file"
    )


def flags_given(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that were typed as flags, by key."""
    found = {key: getattr(args, key, None) for key, *_ in config.flags() if key not in without}
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
    return config.load(args.settings, given)


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
