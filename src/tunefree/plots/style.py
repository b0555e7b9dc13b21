"""How drawn lines look: they differ by colour, dashes and marks, and any one of these is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#00805d", "#b5538c", "#946800", "#2b8cbe", "#3d4852")
DASHES = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.2)),
    (0, (6, 2, 1.5, 2)),
    (0, (9, 3)),
    (0, (4, 1, 1, 1, 1, 1)),
)
MARKS = "os^Dv+xd"


def dressed(axes: Axes, x: str, y: str, title: str = "") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dbd7cd", linewidth=0.7)
    axes.set_axisbelow(True)


def line_look(style: int) -> dict[str, Any]:
    """Colour, dashes and marks, as on the page: any one of them is enough."""
    return {
        "color": COLOURS[style % len(COLOURS)],
        "linestyle": DASHES[style % len(DASHES)],
        "marker": MARKS[style % len(MARKS)],
        "markersize": 5,
        "markerfacecolor": "white" if style % 2 else None,
    }


def named(figure: Figure, *panels: Axes, **where: Any) -> None:
    """One legend for all panels, each name once; beside them, or elsewhere."""
    found = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if found:
        look: dict[str, Any] = {"loc": "outside right upper", "frameon": False, "fontsize": 9}
        figure.legend(found.values(), found.keys(), handlelength=3, **(look | where))
