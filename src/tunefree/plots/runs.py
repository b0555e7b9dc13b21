"""The page's figures as SVG and PNG files, and their numbers as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tunefree.plots.style import (
    COLOURS,
    add_legend,
    draw_counts,
    draw_line,
    label_axes,
    line_style,
    new_figure,
    save_figure,
)
from tunefree.report.grouping import AXES, Content

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Table: TypeAlias = list[Sequence[object]]


class Sheet(NamedTuple):
    """One figure: its file name, a function that draws it, and its numbers."""

    name: str
    high: float  # inches
    draw: Callable[[Figure], None]
    table: Table


def write(content: Content, folder: Path) -> list[Path]:
    """Write every figure as .svg, .png and .csv to this folder."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for sheet in sheets(content):
        figure = new_figure(7.2, sheet.high)
        sheet.draw(figure)
        svg, png, table = (folder / f"{sheet.name}.{end}" for end in ("svg", "png", "csv"))
        files += [save_figure(figure, svg), save_figure(figure, png, dpi=160), table]
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(sheet.table)
    return files


def sheets(content: Content) -> Iterator[Sheet]:
    """Every measure against every axis, and the page's other figures."""
    several = len(content["workloads"]) > 1
    for workload in content["workloads"]:
        start = f"{workload['id']}-" if several else ""
        for y, x in product(workload["measures"], workload["axes"]):
            if any(y in method["y"] and x in method["x"] for method in workload["methods"]):
                yield curves(f"{start}{y}-by-{x}", workload, y, x)
        for sweep in workload["sensitivity"]:
            score = workload["measures"][sweep["measure"]]
            yield sensitivity(f"{start}sensitivity-{sweep['id']}", sweep, score)
        if workload["traffic"]:
            yield traffic(f"{start}traffic", workload["traffic"])
        if workload["staleness"]:
            yield staleness(f"{start}staleness", workload["staleness"])
        if workload["clients"]:
            yield pulls(f"{start}clients", workload["clients"])
        if workload["picture"]:
            yield classes(f"{start}classes", workload["picture"])


def curves(name: str, workload: Content, y: str, x: str) -> Sheet:
    methods = [method for method in workload["methods"] if y in method["y"] and x in method["x"]]

    def draw(figure: Figure) -> None:
        axes = labelled_axes(figure, AXES[x], workload["measures"][y], workload["title"])
        for method in methods:
            points = zip(method["x"][x], *method["y"][y].values(), method["seeds_at"], strict=True)
            state = "" if method["state"] == "done" else f" ({method['state']})"
            look: dict[str, Any] = line_style(method["style"]) | {"label": method["label"] + state}
            measured = [point for point in points if point[1] is not None]
            for seeds, piece in groupby(measured, key=lambda point: point[-1]):
                line = [point[:-1] for point in piece]
                look["linewidth"] = 1.8 if seeds == method["seeds"] else 0.9
                draw_line(axes, line, look | {"markevery": max(1, len(line) // 9)})
                look["label"] = "_"  # one entry for all pieces
        if x.startswith("bits"):
            axes.set_xscale("log")  # whole and compressed messages side by side
        add_legend(figure, axes)

    table: Table = [("method", x, f"{y} mean", "lowest", "highest", "seeds")]
    for method in methods:
        columns = method["x"][x], *method["y"][y].values(), method["seeds_at"]
        table += [(method["label"], *row) for row in zip(*columns, strict=True)]
    return Sheet(name, 4.2, draw, table)


def sensitivity(name: str, sweep: Content, score: str) -> Sheet:
    def draw(figure: Figure) -> None:
        axes = labelled_axes(figure, sweep["key"], score, f"Sensitivity to {sweep['title']}")
        axes.set_xscale("log")
        for line in sweep["lines"]:
            look = line_style(line["style"])
            points = [point for point in line["points"] if point["mean"] is not None]
            drawn = [[point[key] for key in ("x", "mean", "low", "high")] for point in points]
            draw_line(axes, drawn, look | {"linewidth": 1.8, "label": line["label"]})
            lost = [point["x"] for point in line["points"] if point["diverged"]]
            axes.plot(
                lost,
                [0.03] * len(lost),
                "x",
                color=look["color"],
                transform=axes.get_xaxis_transform(),
                label=f"{line['label']}, diverged" if lost else "_",
            )
            if line["theory"]:
                axes.axvline(line["theory"], color=look["color"], linewidth=1, linestyle=":")
        for level in sweep["level"]:
            look = line_style(level["style"]) | {"marker": ""}
            axes.axhline(level["value"], **look, label=level["label"])
        if sweep["measure"] == "accuracy":
            axes.set_ylim(0, 1.02)  # a truncated scale would exaggerate differences
            if sweep["chance"]:
                axes.axhline(sweep["chance"], color="#59626c", linewidth=0.8, linestyle=":")
                where: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "bottom"}
                axes.text(0.01, sweep["chance"], "guessing", fontsize=8, color="#59626c", **where)
        add_legend(figure, axes)

    head = (sweep["key"], f"{sweep['measure']} mean", "lowest", "highest", "seeds", "diverged")
    table: Table = [("method", *head)]
    for line in sweep["lines"]:
        for point in line["points"]:
            keys = ("x", "mean", "low", "high", "seeds", "diverged")
            table.append((line["label"], *(point[key] for key in keys)))
    table += [(level["label"], "", level["value"], "", "", "", "") for level in sweep["level"]]
    return Sheet(name, 4.2, draw, table)


def traffic(name: str, rows: Sequence[Content]) -> Sheet:
    keys = ("bits_up", "value_bits_up", "bits_down", "value_bits_down")

    def draw(figure: Figure) -> None:
        axes = labelled_axes(figure, "bits of one training, all clients", "")
        axes.grid(visible=False)
        for place, row in enumerate(rows):
            for shift, way, colour in ((-0.2, "up", COLOURS[0]), (0.2, "down", COLOURS[6])):
                values, total = row[f"value_bits_{way}"], row[f"bits_{way}"]
                look: dict[str, Any] = {"height": 0.36, "edgecolor": colour}
                label = way if place == 0 else "_"
                axes.barh(place + shift, values, color=colour, label=label, **look)
                rest = "positions" if place == 0 and way == "down" else "_"
                hatched = look | {"color": "white", "hatch": "////", "label": rest}
                axes.barh(place + shift, total - values, left=values, **hatched)
        axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
        axes.invert_yaxis()
        axes.margins(x=0.03)
        add_legend(figure, axes)

    table: Table = [("method", *(key.replace("_", " ") for key in keys))]
    table += [(row["label"], *(row[key] for key in keys)) for row in rows]
    return Sheet(name, 1.6 + 0.5 * len(rows), draw, table)


def staleness(name: str, rows: Sequence[Content]) -> Sheet:
    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, row in zip(panels, rows, strict=True):
            at = [i * row["width"] for i in range(len(row["bars"]))]
            share = [count / row["replies"] for count in row["bars"]]
            colour = COLOURS[row["style"] % len(COLOURS)]
            axes.bar(at, share, width=0.8 * row["width"], color=colour)
            about = f"{row['mean']:.2f} on average, {row['worst']} at most"
            axes.set_title(f"{row['label']}: {about}", fontsize=9, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("server steps since the client's download", fontsize=10)
        figure.supylabel("share of replies", fontsize=10)

    table: Table = [("method", "staleness from", "to", "replies")]
    for row in rows:
        for i, count in enumerate(row["bars"]):
            table.append((row["label"], i * row["width"], (i + 1) * row["width"] - 1, count))
    return Sheet(name, 0.8 + 1.5 * len(rows), draw, table)


def pulls(name: str, rows: Sequence[Content]) -> Sheet:
    def draw(figure: Figure) -> None:
        axes = labelled_axes(
            figure, "agreement with the others, cosine", "length, in medians", "Who pulls where"
        )
        for row in rows:
            _, agreement, length, _ = zip(*row["clients"], strict=True)
            colour = COLOURS[row["style"] % len(COLOURS)]
            axes.scatter(agreement, length, s=14, color=colour, label=row["label"])
            for client, x, y, why in row["clients"]:
                if why:
                    axes.annotate(str(client), (x, y), (4, 2), textcoords="offset points")
        axes.set(xlim=(-1, 1), yscale="log")
        add_legend(figure, axes)

    table: Table = [("method", "client", "agreement", "length", "stands apart")]
    table += [(row["label"], *each) for row in rows for each in row["clients"]]
    return Sheet(name, 4.0, draw, table)


def classes(name: str, picture: Content) -> Sheet:
    counts = np.asarray(picture["counts"])

    def draw(figure: Figure) -> None:
        draw_counts(figure, counts, picture["clients"])

    table: Table = [("client", *picture["classes"])]
    table += [(client, *row) for client, row in zip(picture["names"], counts, strict=True)]
    return Sheet(name, min(8.0, 2.4 + 0.2 * counts.shape[1]), draw, table)


def labelled_axes(figure: Figure, x: str, y: str, title: str = "") -> Axes:
    axes: Axes = figure.subplots()
    label_axes(axes, x, y, title)
    return axes
