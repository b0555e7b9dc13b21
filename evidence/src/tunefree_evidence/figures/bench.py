"""The figure of `tunefree-evidence bench`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefree.plots import COLOURS, new_figure, save_figure


def draw_times(result: Mapping[str, Any], path: Path) -> Path:
    """Seconds per round: bars for the medians, whiskers from lowest to highest."""
    rows, about = result["contestants"][::-1], result["workload"]
    figure = new_figure(8, 0.6 * len(rows) + 1.2)
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        colour = COLOURS[0] if row["name"].startswith("tunefree") else "#999999"
        axes.barh(place, row["median"], color=colour, height=0.6)
        axes.plot([row["low"], row["high"]], [place, place], color="#1f2933", linewidth=1)
        axes.annotate(f" {row['median']:.3g} s", (row["high"], place), va="center")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_xlabel("seconds per round, median and range")
    axes.set_xlim(0, 1.2 * max(row["high"] for row in rows))
    axes.set_title(f"Workload {about['name']}: {about['about']}")
    axes.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, path)
