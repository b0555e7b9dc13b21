"""What commands print on standard output: an answer as text or JSON, tables."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple


class Answer(NamedTuple):
    """The result of a command: its data, and the same as text or as what prints it."""

    data: object
    text: str | Callable[[], None]
    failed: bool = False

    def printed(self, form: str) -> bool:
        """Print it as `text` or `json`; returns whether the command has failed."""
        if form == "json":
            print(json.dumps(self.data))
        elif callable(self.text):
            self.text()
        elif self.text:
            print(self.text)
        return self.failed


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    wrapped: Collection[str] = (),
    right: Collection[str] = (),
    width: int | None = None,
) -> None:
    """Print a table; only the `wrapped` columns are wrapped on a narrow terminal.

    `width` is for a table that needs more columns than the terminal has.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in columns:
        justify = "right" if column in right else "left"
        table.add_column(
            column,
            no_wrap=column not in wrapped,
            overflow="fold",
            justify=justify,  # type: ignore[arg-type]
        )
    for row in rows:
        table.add_row(*row)
    Console(width=width, markup=False, emoji=False).print(table)


def print_entries(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str],
    right: Collection[str] = (),
    wrapped: bool = True,
) -> None:
    """Print a table with a line below each row, for text that is too long for a column.

    The line is wrapped on a narrow terminal, unless it is to be copied as a whole.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for i, line in enumerate(lines):
        cells = (
            f"{cell:>{wide}}" if name in right else f"{cell:<{wide}}"
            for name, cell, wide in zip(columns, line, widths, strict=True)
        )
        text = "  ".join(cells).rstrip()
        console.print(f" {text}", style="" if i else "bold", soft_wrap=True)
        if i and wrapped:
            for part in textwrap.wrap(below[i - 1], max(20, console.width - 5)):
                console.print(f"    {part}", style="dim", soft_wrap=True)
        elif i:
            console.print(f"    {below[i - 1]}", soft_wrap=True)
