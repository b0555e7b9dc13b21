"""What commands print on standard output: an answer as text or JSON, tables."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from rich.text import Text

Line: TypeAlias = "str | Text"


class Answer(NamedTuple):
    """The result of a command: its data, and the same as lines of text."""

    data: object
    lines: Iterable[Line] = ()
    failed: bool = False

    def printed(self, form: str) -> bool:
        """Print it as `text` or `json`; returns whether the command has failed."""
        if form == "json":
            print(json.dumps(self.data))
            return self.failed
        for line in self.lines:
            if isinstance(line, str):
                print(line)
            else:
                from rich.console import Console

                Console().print(line, soft_wrap=True)
        return self.failed


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    below: Sequence[str] = (),
    wrapped: bool = True,
) -> Iterator[Text]:
    """The lines of a table, and below each row a line that is too long for a column, if given.

    That line is wrapped on a narrow terminal, unless it is to be copied as a whole.
    """
    from rich.text import Text

    lines, width = [columns, *rows], max(20, shutil.get_terminal_size().columns - 5)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for i, line in enumerate(lines):
        cells = (
            f"{cell:>{wide}}" if name in right else f"{cell:<{wide}}"
            for name, cell, wide in zip(columns, line, widths, strict=True)
        )
        yield Text(" " + "  ".join(cells).rstrip(), style="" if i else "bold")
        more = below[i - 1 : i] if i else ()
        for text in more:
            for part in textwrap.wrap(text, width) if wrapped else [text]:
                yield Text(f"    {part}", style="dim" if wrapped else "")


def number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def accidents(states: Sequence[str]) -> str:
    """How many runs diverged or failed, if any did.

    >>> accidents(["done", "diverged", "diverged"])
    ', 2 of 3 diverged'
    """
    bad = [state for state in ("diverged", "failed") if state in states]
    return "".join(f", {states.count(state)} of {len(states)} {state}" for state in bad)
