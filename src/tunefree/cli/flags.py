"""Flags that commands share: every setting of a run, and the folder of its files."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tunefree.errors import NOTHING, ConfigError, Spelling, plain
from tunefree.settings import FIELDS, Settings, flat, parse_assignment, read

if TYPE_CHECKING:
    from tunefree.record import Facts

OF_TABLES = {  # options of the user's own CSV table that have flags -> flags, help
    "data_option.target": ("--target-column --target", "of a CSV table: the column to learn"),
    "data_option.client_column": ("--client-column", "of a CSV table: each row's client"),
}
OF_METHOD = ("algorithm", "compressor", "explicit_steps", "option")
FOLLOWING = ("data_fingerprint", "start_fingerprint")  # from other settings
NOT_REPEATED = (*OF_METHOD, *FOLLOWING, "data", "fleet", "workers", "out")  # with another method
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


def add(
    command: argparse._ActionsContainer,  # a parser or a group
    usage: str,
    help: str,
    kind: Callable[[str], Any] = str,
    default: object = None,
    **more: Any,
) -> None:
    """An argument as its usage shows it: `RUN`, `[DIR]`, `--port P`, `--seeds X ...` or `--tls`."""
    names = [word for word in usage.split() if word.startswith("-")]
    value = " ".join(usage.split()[len(names) :])
    if not value:
        command.add_argument(*names, action="store_true", help=help, **more)
        return
    shown = value.removesuffix(" ...").strip("[]")
    nargs = "+" if value.endswith(" ...") else "?" if value.startswith("[") else None
    more |= {"metavar": shown, "nargs": nargs, "type": kind, "default": default, "help": help}
    command.add_argument(*(names or [shown.lower().partition(".")[0]]), **more)


def add_repeated(command: argparse.ArgumentParser, usage: str, help: str) -> None:
    """A flag that may be given several times."""
    name, value = usage.split()
    command.add_argument(name, metavar=value, action="append", default=[], help=help)


def add_format(command: argparse.ArgumentParser) -> None:
    """How the answer is printed: every command has this flag."""
    command.add_argument(
        "--format", choices=("text", "json"), default="text", help="of the results"
    )


def add_to(command: argparse.ArgumentParser, seeds: Sequence[int]) -> None:
    """Every setting of a run, except those that differ between runs."""
    usual = f"one run for each (default {' '.join(map(str, seeds))})"
    add(command, "--seeds X ...", usual, int, list(seeds))
    add(command, "--settings FILE.toml", "a file, as for `tunefree run`", Path)
    add_flags(command, without=OWN)
    add(command, "--workers X", "runs at once; 0 is one per core", int, 0)
    add(command, "--out DIR", "folder of the run files (default: one in runs/)", default="")


def add_flags(command: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """A flag for each setting."""
    kinds = get_type_hints(Settings)
    for name, f in FIELDS.items():
        if name in without or not names_of(name):
            continue
        kind = {int: int, int | None: int, float: float}.get(kinds[name], str)
        value = "" if kinds[name] is bool else " X"
        default = f" (default {f.default})" if f.default else ""
        usage, about = " ".join(names_of(name)) + value, f"{f.metadata['help']}{default}"
        add(command, usage, about, kind, dest=name)
    for key, (names, about) in OF_TABLES.items():  # by all names that this command has not taken
        free = [name for name in names.split() if name not in command._option_string_actions]
        add(command, f"{' '.join(free)} X", about, dest=key)
    add_repeated(command, "--set KEY=VALUE", "any key of a settings file")


def flags_given(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that were given as flags, by name."""
    names = [name for name in (*FIELDS, *OF_TABLES) if names_of(name) and name not in without]
    found = {name: getattr(args, name, None) for name in names}
    return {name: x for name, x in found.items() if x is not None and x is not False}


def given_by(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that were given by flags and by --set, by name."""
    return flags_given(args, without) | dict(map(parse_assignment, args.set))


def spelling(args: argparse.Namespace) -> Spelling:
    """How errors spell a setting: as in the settings file if it is from there, else as typed."""
    path = getattr(args, "file", None) or getattr(args, "settings", None)
    usual: Spelling = getattr(args, "spelled", typed)  # a command may have its own
    with suppress(ConfigError):
        if in_file := read(path).keys() - (given_by(args) if path else {}).keys():
            return lambda name, value: (plain if name in in_file else usual)(name, value)
    return usual


def searched_by(flag: str, names: Collection[str]) -> Spelling:
    """How errors spell the options whose values a flag lists; others are typed as usual."""

    def spelled(name: str, value: object) -> str:
        own = name.removeprefix("option.")
        return f"{flag.format(own)}{value}" if own in names else typed(name, value)

    return spelled


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that all runs share."""
    given = given_by(args, without=OWN)
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

    usual = flat(Settings().asdict()) | {"model": sources.usual_model(facts.data)}
    if facts.settings.get("local_epochs"):
        usual["local_steps"] = None  # it follows
    words = [typed("data", facts.data)]
    for name, value in flat(facts.settings).items():
        repeated = name.partition(".")[0] not in NOT_REPEATED
        if repeated and value not in (usual.get(name), ""):
            words.append(typed(name, value))
    return " ".join(words)


@contextmanager
def writing(path: Path, flag: str = "") -> Iterator[None]:
    """Turn the operating system's errors on a file or folder into one sentence."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{flag}'{path}' cannot be written ({error.strerror}); choose another path"
        ) from error


def check_out(folder: Path) -> None:
    """Refuse a folder that cannot be created or written to, before anything is run."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "no permission" if nearest.is_dir() else f"'{nearest}' is a file"
        raise ConfigError(
            f"--out '{folder}' cannot be written ({why}); choose a folder that you may write to"
        )
