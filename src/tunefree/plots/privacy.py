"""The plan of a privacy budget as a picture: noise against signal, over rounds and cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tunefree.plots.style import add_legend, label_axes, line_style, new_figure, save_figure
from tunefree.privacy.plan import RecordRow, Row


def draw_plan(rows: Sequence[Row] | Sequence[RecordRow], path: Path, title: str) -> Path:
    """A line for each number of clients per round, or of records per batch; at 1 the noise is as
    long as the signal."""
    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    every: list[Row | RecordRow] = list(rows)
    for style, (size, group) in enumerate(groupby(every, key=lambda row: row[0])):
        some = list(group)
        points = [(row.rounds, row.noise) for row in some]
        what = "per round" if isinstance(some[0], Row) else "per batch"
        axes.plot(*zip(*points, strict=True), label=f"{size:,} {what}", **line_style(style))
    axes.axhline(1, color="#3d4852", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_axes(axes, "rounds", "noise of a round, against the signal", title)
    add_legend(figure, axes)
    return save_figure(figure, path)
