"""The pictures of `how-it-works.md`, drawn from the library itself: `make pictures`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import tunefree.models
from tunefree.core import System, stream
from tunefree.data import sources
from tunefree.fleet.job import Fleet
from tunefree.geometry import newton_schulz, split, units
from tunefree.models.objective import Objective
from tunefree.plots.style import COLOURS, label_axes, new_figure, save_figure
from tunefree.schedule.clock import VirtualClock
from tunefree.schedule.delays import SpeedClasses
from tunefree.schedule.timeline import Timeline

FOLDER = Path(__file__).parents[1] / "pictures"
MODELS = {  # name -> the shape of a sample, and the number of classes
    "mlp": ((1, 8, 8), 10),
    "cnn_mnist": ((1, 28, 28), 10),
    "cnn_emnist": ((1, 28, 28), 47),
    "lstm_imdb": ((128,), 2),
}
GREY = "#8a8577"


def draw_units() -> Any:
    """The initial lengths of the tensors of four of our models."""
    figure = new_figure(7.2, 3.0)
    axes = figure.subplots()
    for place, (name, (shape, classes)) in enumerate(MODELS.items()):
        objective = Objective(tunefree.models.build(name, shape, classes, {}, 0))
        lengths = units(objective.theta0, objective.shapes)
        axes.plot(lengths, [place] * len(lengths), "o", color=COLOURS[0], alpha=0.6, markersize=8)
        axes.plot([float(objective.theta0.norm())], [place], "D", color=COLOURS[1], markersize=7)
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.text(1.03, len(MODELS) - 0.45, "the papers' unit", color=GREY, fontsize=9)
    axes.set_xscale("log")
    axes.set_yticks(range(len(MODELS)), list(MODELS))
    axes.set_ylim(-0.6, len(MODELS) - 0.2)
    label_axes(axes, "initial length of each tensor (dots) and of the whole model (diamonds)", "")
    return figure


def gradient() -> torch.Tensor:
    """The gradient of a model's first matrix on a mini-batch of digits."""
    data = sources.load("digits")
    objective = Objective(tunefree.models.build("mlp", (1, 8, 8), 10, {}, 0))
    x, y = data.train.batch(np.arange(100))
    whole = objective.grad(objective.theta0, x, y, seed=0)
    return split(whole, objective.shapes)[0].view(objective.shapes[0])


def draw_polar() -> Any:
    """What a step does to directions, in the plane and for a real gradient."""
    figure = new_figure(8.2, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    plain = turn @ np.diag([1.0, 0.08])
    plain /= np.linalg.norm(plain)
    polar = turn / np.linalg.norm(turn)
    for matrix, colour, name in ((plain, COLOURS[1], "g / ||g||"), (polar, COLOURS[0], "polar")):
        x, y = matrix @ circle
        left.plot(x, y, color=colour, linewidth=2, label=name)
    left.set_aspect("equal")
    left.set_xticks([])
    left.set_yticks([])
    left.set_xlim(-1.15, 1.15)
    left.set_ylim(-1.1, 1.1)
    left.legend(frameon=False, fontsize=9, loc="lower right")
    label_axes(left, "", "", "a circle of inputs after a step of length 1")
    left.spines[:].set_visible(False)

    g = gradient()
    matrix = (g / g.norm()).unsqueeze(0)
    factor = newton_schulz(matrix)
    count = range(1, min(g.shape) + 1)
    for M, colour, mark, name in (
        (matrix, COLOURS[1], "s", "g / ||g||"),
        (factor / factor.norm(), COLOURS[0], "o", "polar"),
    ):
        values = torch.linalg.svdvals(M[0]).tolist()
        right.plot(count, values, mark, color=colour, markersize=4, label=name)
    right.legend(frameon=False, fontsize=9)
    title = f"a real gradient, {g.shape[0]} x {g.shape[1]}, digits"
    label_axes(right, "singular direction", "singular value", title)
    return figure


def draw_control() -> Any:
    """Three clients with different optima: one client's direction, alone and corrected."""
    figure = new_figure(6.8, 4.0)
    axes: Any = figure.subplots()
    optima = torch.tensor([[-2.0, 0.6], [1.6, 1.5], [1.3, -1.9]])
    curves = torch.tensor([[1.0, 0.6], [0.5, 1.2], [0.9, 0.8]])
    best = (curves * optima).sum(0) / curves.sum(0)
    x, before = torch.tensor([-0.4, 1.9]), torch.tensor([-0.75, 2.1])  # now, and a round ago
    kept = curves * (before - optima)  # c_i
    now = curves * (x - optima)
    c, i = kept.mean(0), 1
    g = c + (now[i] - kept[i])
    grid = np.meshgrid(np.linspace(-2.9, 2.9, 80), np.linspace(-2.4, 2.7, 80))
    value = sum(
        float(a[0]) * (grid[0] - float(o[0])) ** 2 + float(a[1]) * (grid[1] - float(o[1])) ** 2
        for a, o in zip(curves, optima, strict=True)
    )
    axes.contour(*grid, value, levels=9, colors="#dbd7cd", linewidths=0.8)
    for number, (a, b) in enumerate(optima.tolist()):
        axes.plot(a, b, "s", color=GREY, markersize=6)
        note(axes, f"optimum of client {number}", (a, b), (6, 5))
    axes.plot(*best.tolist(), "*", color=COLOURS[2], markersize=14)
    note(axes, "optimum of all", tuple(best.tolist()), (9, -9))
    axes.plot(*x.tolist(), "o", color="black", markersize=6)
    note(axes, "x", tuple(x.tolist()), (-11, 4))
    for v, colour, style, name in (
        (now[i], COLOURS[1], (0, (4, 2)), "client 1's own direction"),
        (g, COLOURS[0], "-", "c + d_1: with the control variate"),
        (now.mean(0), COLOURS[2], (0, (1, 1.5)), "mean direction of all three"),
    ):
        step = -1.3 * v / v.norm()
        arrow = {"arrowstyle": "-|>", "color": colour, "linestyle": style, "linewidth": 2}
        axes.annotate("", tuple((x + step).tolist()), tuple(x.tolist()), arrowprops=arrow)
        axes.plot([], [], color=colour, linestyle=style, linewidth=2, label=name)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    return figure


def note(axes: Any, text: str, at: tuple[float, ...], aside: tuple[int, int]) -> None:
    axes.annotate(text, at, aside, textcoords="offset points", size=8)


def draw_schedules() -> Any:
    """The same eight clients on the same virtual clock: rounds, and a buffer of two."""
    figure = new_figure(8.4, 4.6)
    top, bottom = figure.subplots(2, 1, sharex=True)
    N, seed, delays = 8, 2, SpeedClasses()
    jobs: Counter[int] = Counter()

    def seconds(client: int) -> float:
        jobs[client] += 1
        return delays.duration(seed, client, jobs[client] - 1)

    clock, end = 0.0, 26.0
    while clock < end:
        number = sum(jobs.values()) // 4
        chosen = stream(seed, "cohort", number).choice(N, 4, replace=False)
        took = {int(client): seconds(int(client)) for client in chosen}
        over = clock + max(took.values())
        for client, each in took.items():
            bar(top, client, clock, each, over)
        top.axvline(over, color=GREY, linewidth=1)
        clock = over

    jobs.clear()
    sys = System(N=N, S=2, K=1, T=100)
    timeline = Timeline(
        *(seed, sys),
        concurrency=4,
        dispatch="flush",
        clock=VirtualClock(delays, seed),
        dropout=0.0,
        timeout=delays.longest,
        fleet=cast(Fleet, None),  # no training: only who would train, and when
    )
    times = [0.0]
    for t, (now, tickets, *_) in enumerate(timeline):
        for _, client, then in tickets:
            bar(bottom, client, times[then], seconds(client), now, f"{t - then}")
        bottom.axvline(now, color=GREY, linewidth=1)
        times.append(now)
        if now > end:
            break
    for axes in (top, bottom):
        axes.set_xlim(0, end)
        axes.set_ylim(N - 0.4, -0.6)
        axes.set_yticks(range(N))
    label_axes(top, "", "client", "synchronous: four clients a round, which waits for the slowest")
    label_axes(
        bottom,
        "virtual seconds; each grey line is a server step",
        "client",
        "buffered: four clients training, a step per two uploads; numbers: age in steps",
    )
    for axes in (top, bottom):
        axes.grid(visible=False)
    return figure


def bar(axes: Any, client: int, start: float, took: float, used: float, text: str = "") -> None:
    """A client's job, and the time until the server uses its upload."""
    late = text not in ("", "0")
    colour = COLOURS[1] if late else COLOURS[0]
    axes.barh(client, took, left=start, height=0.62, color=colour, edgecolor="white")
    axes.plot([start + took, used], [client, client], color=colour, linewidth=1, linestyle=":")
    middle = start + took / 2
    axes.text(middle, client, text, color="white", ha="center", va="center", size=8, clip_on=True)


PICTURES = {
    "units": draw_units,
    "polar": draw_polar,
    "control": draw_control,
    "schedules": draw_schedules,
}


def draw_all(folder: Path = FOLDER, suffix: str = ".svg") -> list[Path]:
    return [save_figure(draw(), folder / f"{name}{suffix}") for name, draw in PICTURES.items()]


if __name__ == "__main__":
    draw_all()
