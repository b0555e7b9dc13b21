"""A plain table on standard output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    wrapped: Collection[str] = (),
    right: Collection[str] = (),
    width: int | None = None,
) -> None:
    """Names and numbers stay whole; only the wrapped columns give way on a narrow terminal.

    A table that would suffer from that can ask for a `width` of its own.
    """
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
    Console(width=width).print(table)
