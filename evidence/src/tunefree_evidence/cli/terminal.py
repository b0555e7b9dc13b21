"""What the commands share: flags in full, one sentence for an error, tables, a writable folder."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from tunefree.errors import ConfigError, TunefreeError

Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Takes flags by their full names; reports an error in one sentence and exits with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def act(args: argparse.Namespace) -> int:
    """Do what the command says: 0 if done, 1 if failed, 2 for bad usage."""
    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    try:
        command: Command = args.act
        return command(args)
    except TunefreeError as error:
        print(f"tunefree-evidence: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    wrapped: Collection[str] = (),
    right: Collection[str] = (),
    width: int | None = None,
) -> None:
    """Print a table; only the `wrapped` columns are wrapped on a narrow terminal."""
    table = Table(box=None, header_style="bold")
    for column in columns:
        table.add_column(
            column,
            no_wrap=column not in wrapped,
            overflow="fold",
            justify="right" if column in right else "left",
        )
    for row in rows:
        table.add_row(*row)
    Console(width=width).print(table)


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
