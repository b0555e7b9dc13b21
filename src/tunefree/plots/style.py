"""Shared by all figures: creating and saving them, and line styles by colour, dash and mark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2933"
COLOURS = ("#0072b2", "#d55e00", "#00805d", "#b5538c", "#946800", "#2b8cbe", "#3d4852")
DASHES = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.2)),
    (0, (6, 2, 1.5, 2)),
    (0, (9, 3)),
    (0, (4, 1, 1, 1, 1, 1)),
)
MARKS = "os^Dv+pd"  # no cross, which means diverged


def new_figure(width: float, height: float) -> Figure:
    """A figure with its size in inches, outside pyplot's global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "pictures need matplotlib, which is not installed; pip install 'tunefree[report]'"
        ) from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path, dpi: int = 130) -> Path:
    """The figure as a PNG or an SVG; the same figure gives the same bytes."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    how: dict[str, Any] = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": dpi}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tunefree"}):  # text stays text
        figure.savefig(path, **how)
    return path


def label_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dbd7cd", linewidth=0.7)
    axes.set_axisbelow(True)


def draw_counts(
    figure: Figure,
    counts: NDArray[np.int64],
    total: int,
    names: Sequence[str] = (),
    title: str = "Samples by client and class",
) -> None:
    """Counts by client and class, of the first clients: one column each, with its size above."""
    from matplotlib.colors import PowerNorm

    clients, classes = counts.shape
    top, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, max(2.0, 0.24 * classes)])
    top.bar(np.arange(clients), counts.sum(axis=1), width=0.8, color="#486581")
    top.set_ylim(0, 1.1 * max(1, counts.sum(axis=1).max()))
    label_axes(top, "", "samples")

    seen = np.ma.masked_equal(counts.T, 0)  # zero is white, one sample already coloured
    roots = PowerNorm(gamma=0.5, vmin=0, vmax=max(1, int(counts.max(initial=0))))
    image = main.imshow(seen, aspect="auto", cmap="YlGnBu", norm=roots)
    main.set_facecolor("white")
    labels = list(names) if len(names) == classes else [str(k) for k in range(classes)]
    main.set_yticks(np.arange(classes), labels, fontsize=8 if classes <= 30 else 6)
    main.set_ylabel("class", color=INK)
    main.set_xlabel("client", color=INK)
    main.set_xticks(np.arange(0, clients, 1 if clients <= 20 else 5 if clients <= 50 else 10))
    main.tick_params(length=2)
    bar = figure.colorbar(image, ax=[top, main], fraction=0.04, pad=0.02)
    bar.set_label("samples of the class", color=INK)
    bar.outline.set_visible(False)
    more = f" (the first {clients} of {total} clients)" if total > clients else ""
    figure.suptitle(title + more, color=INK, fontsize=11)


def line_style(style: int) -> dict[str, Any]:
    """Colour, dashes and marks as on the page; any one of them identifies the line."""
    return {
        "color": COLOURS[style % len(COLOURS)],
        "linestyle": DASHES[style % len(DASHES)],
        "marker": MARKS[style % len(MARKS)],
        "markersize": 5,
        "markerfacecolor": "white" if style % 2 else None,
    }


def draw_line(axes: Axes, points: Sequence[Sequence[Any]], style: dict[str, Any]) -> None:
    """A line of means with a band from lowest to highest; points are (x, mean, low, high)."""
    at, mean, low, high = zip(*points, strict=True) if points else ((),) * 4
    axes.plot(at, mean, **style)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.14, linewidth=0)


def add_legend(figure: Figure, *panels: Axes, **where: Any) -> None:
    """One legend for all panels, each name once; to their right by default."""
    found = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if found:
        look: dict[str, Any] = {"loc": "outside right upper", "frameon": False, "fontsize": 9}
        figure.legend(found.values(), found.keys(), handlelength=3, **(look | where))
