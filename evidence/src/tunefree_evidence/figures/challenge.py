"""Figures of the challenge: our method against the best tuned one, and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.plots import (
    COLOURS,
    add_legend,
    label_axes,
    line_style,
    new_figure,
    save_figure,
)

DPI = 120


class Pair(NamedTuple):
    """A task's accuracies, ours and the best tuned method's, with their spreads."""

    task: str
    held_out: bool
    ours: tuple[float, float]
    best: tuple[float, float]
    title: str  # of the best tuned method


class Profile(NamedTuple):
    """For each method, in order, the share of tasks within each limit."""

    limits: Sequence[float]
    shares: Mapping[str, Sequence[float]]
    x: str
    log: bool = False


def save_pairs(pairs: Sequence[Pair], path: Path) -> Path:
    """A row for each task: the final accuracy of our method and of the best tuned one."""
    figure = new_figure(8.2, 1.1 + 0.34 * len(pairs))
    axes = figure.subplots()
    label_axes(axes, "test accuracy at the end, mean and deviation over seeds", "")
    names = [f"{pair.task}{' (held out)' if pair.held_out else ''}" for pair in pairs]
    for place, pair in enumerate(pairs):
        ours, best = pair.ours[0], pair.best[0]
        axes.plot([best, ours], [place, place], color="#b9b4a7", linewidth=2, zorder=1)
        look: dict[str, Any] = {"linestyle": "", "capsize": 2, "markersize": 7}
        for x, spread, marker, color, label in (
            (*pair.best, "s", COLOURS[1], "best tuned method (named)"),
            (*pair.ours, "o", COLOURS[0], "PolarFL, untuned"),
        ):
            axes.errorbar(x, place, xerr=spread, marker=marker, color=color, label=label, **look)
        right = ours < best
        axes.annotate(
            pair.title,
            (best + pair.best[1] if right else best - pair.best[1], place),
            xytext=(8 if right else -8, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=7.5,
            color="#5d5a52",
        )
    axes.set_yticks(range(len(pairs)), names)
    axes.invert_yaxis()
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.12 * (high - low), high + 0.12 * (high - low))
    axes.grid(axis="x", color="#dbd7cd", linewidth=0.7)
    add_legend(figure, axes, loc="outside lower center", ncols=2)
    return save_figure(figure, path, DPI)


def save_profiles(profiles: Sequence[Profile], path: Path) -> Path:
    """Shares of tasks against the distance to the best; up and to the left is better."""
    figure = new_figure(10.5, 4.4)
    panels = list(figure.subplots(1, len(profiles), squeeze=False).flat)
    names = list(dict.fromkeys(name for profile in profiles for name in profile.shares))
    for profile, axes in zip(profiles, panels, strict=True):
        label_axes(axes, profile.x, "share of tasks")
        for name, shares in profile.shares.items():
            style = line_style(names.index(name)) | {"markevery": max(1, len(shares) // 6)}
            bold = {"linewidth": 2.6 if names.index(name) == 0 else 1.3, "label": name}
            axes.plot(profile.limits, shares, **(style | bold), drawstyle="steps-post")
        axes.set_ylim(-0.03, 1.03)
        if profile.log:
            axes.set_xscale("log", base=2)
            ticks = [limit for limit in (1, 4, 16, 64, 256) if limit <= profile.limits[-1]]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    add_legend(figure, *panels)
    return save_figure(figure, path, DPI)
