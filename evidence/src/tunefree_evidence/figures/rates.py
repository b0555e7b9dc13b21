"""Accuracy against the learning rate: curves of methods that have one, a line of one without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tunefree.plots import COLOURS, label_axes, new_figure, save_figure

Curve: TypeAlias = Sequence[tuple[float, Sequence[float]]]  # rates, and accuracies over seeds


def save_rates(curves: Mapping[str, Curve], ours: Sequence[float], name: str, path: Path) -> Path:
    """The picture that explains the idea: cliffs, and one level line."""
    figure = new_figure(7.6, 3.9)
    axes = figure.subplots()
    label_axes(axes, "learning rate", "test accuracy at the end")
    for place, (title, curve) in enumerate(curves.items(), 1):
        colour = COLOURS[place]
        x = [rate for rate, _ in curve]
        means = [sum(found) / len(found) for _, found in curve]
        lows, highs = ([pick(found) for _, found in curve] for pick in (min, max))
        axes.fill_between(x, lows, highs, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, means, color=colour, marker="os^"[place - 1], markersize=5, label=title)
    level = sum(ours) / len(ours)
    axes.axhline(level, color=COLOURS[0], linewidth=2.5)
    axes.axhspan(min(ours), max(ours), color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.annotate(
        f"{name}: no learning rate",
        (0.02, level),
        xycoords=("axes fraction", "data"),
        xytext=(0, 5),
        textcoords="offset points",
        color=COLOURS[0],
        weight="bold",
    )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.08)
    axes.grid(axis="y", color="#dbd7cd", linewidth=0.7)
    figure.legend(loc="outside lower center", ncols=len(curves), frameon=False, fontsize=8.5)
    return save_figure(figure, path)
