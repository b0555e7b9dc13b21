"""Curves in one or more panels: means over seeds, with a band from lowest to highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tunefree.plots import (
    add_legend,
    draw_line,
    label_axes,
    line_style,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, HIGH, DPI = 4.2, 2.9, 110  # inches of a panel, dots per inch
FEW = 8  # at most so many values on an axis each get a label

Points: TypeAlias = Mapping[float, Sequence[float]]  # x -> one value per seed


class Panel(NamedTuple):
    """The content of one pair of axes."""

    title: str
    lines: Mapping[str, Points]
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    slopes: Mapping[str, float] = {}  # of the theorem, dotted from a line's first point
    note: str = ""


def save(panels: Sequence[Panel], path: Path) -> Path:
    """Save all panels as one picture."""
    return save_figure(draw(panels), path, DPI)


def draw(panels: Sequence[Panel]) -> Figure:
    """Draw all panels with one legend."""
    columns = min(len(panels), 3 if len(panels) > 4 else 2)
    rows = ceil(len(panels) / columns)
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    figure = new_figure(max(2, columns) * WIDE, rows * HIGH + 0.15 * len(labels))
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, axes in zip(panels, grid, strict=False):
        draw_panel(panel, axes, labels)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    add_legend(figure, *grid, loc="outside lower left", ncols=2)
    return figure


def draw_panel(panel: Panel, axes: Axes, labels: Sequence[str]) -> None:
    """Mean over seeds, with a band from the lowest to the highest."""
    label_axes(axes, panel.x, panel.y, panel.title)
    for label, line in panel.lines.items():
        points = [(x, fmean(y), min(y), max(y)) for x, y in sorted(line.items())]
        every = {"linewidth": 1.6, "label": label, "markevery": max(1, len(points) // 9)}
        draw_line(axes, points, line_style(labels.index(label)) | every)
        if label in panel.slopes:
            (start, mean, *_), at = points[0], sorted(line)
            fall = [mean * (x / start) ** panel.slopes[label] for x in at]
            axes.plot(at, fall, ":", color="#3d4852", linewidth=1.2, label="the theorem's slope")
    if panel.log_x:
        axes.set_xscale("log")
        values = sorted({x for line in panel.lines.values() for x in line})
        if len(values) <= FEW:
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.minorticks_off()
    if panel.log_y:
        axes.set_yscale("log")
    corner: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "fontsize": 7}
    axes.text(0.99, 0.02, panel.note, **corner)
