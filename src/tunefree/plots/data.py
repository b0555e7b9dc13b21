"""Figures of data, and of the plan of a privacy budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from tunefree.data.samples import Dataset, Index
from tunefree.errors import ConfigError
from tunefree.plots.style import (
    INK,
    add_legend,
    draw_counts,
    label_axes,
    line_style,
    new_figure,
    save_figure,
)
from tunefree.privacy.plan import RecordRow, Row

SHOWN_CLIENTS = 100


def draw_clients(
    counts: Index, path: Path, names: tuple[str, ...] = (), title: str = "Samples"
) -> Path:
    """A PNG of the client-by-class counts."""
    clients, classes = counts[:SHOWN_CLIENTS].shape
    figure = new_figure(min(14.0, 3.2 + 0.14 * clients), 2.6 + min(8.0, 0.26 * classes))
    draw_counts(figure, counts[:SHOWN_CLIENTS], len(counts), names, title)
    return save_figure(figure, path)


def draw_samples(data: Dataset, path: Path, columns: int = 10) -> Path:
    """A PNG with a row of training images for each class."""
    x, y = data.train.x, data.train.y
    if data.classes is None or data.words or x.dim() not in (3, 4):
        raise ConfigError(f"{data.name} has no images to draw; use first_words for texts")
    rows = [first_of_class(y, label, columns) for label in range(data.classes)]
    blocks = max(1, round(data.classes / 16))  # several columns of rows if there are many
    tall = -(-data.classes // blocks)
    names = data.names or tuple(str(label) for label in range(data.classes))
    margin = 0.25 + 0.09 * max(len(name) for name in names)
    figure = new_figure(blocks * (margin + 0.36 * columns), 0.45 + 0.36 * tall)
    axes = figure.subplots(1, blocks, squeeze=False)[0]
    for block, axis in enumerate(axes):
        labels = range(block * tall, min((block + 1) * tall, data.classes))
        sheet = np.concatenate([row_of(x, rows[label], columns) for label in labels])
        high, wide = sheet.shape[0] // len(labels), sheet.shape[1] // columns
        axis.imshow(sheet, cmap="gray_r" if sheet.ndim == 2 else None, interpolation="nearest")
        axis.set_yticks(
            [(i + 0.5) * high for i in range(len(labels))], [names[k] for k in labels], fontsize=9
        )
        axis.set_xticks([])
        axis.set_ylim(tall * high - 0.5, -0.5)
        axis.set_xlim(-0.5, columns * wide - 0.5)
        axis.tick_params(length=0, colors=INK)
        axis.spines[:].set_visible(False)
    figure.suptitle(f"{data.name}: the first training images of each class", color=INK, fontsize=11)
    return save_figure(figure, path)


def first_words(data: Dataset, rows: int = 3, words: int = 12) -> list[tuple[str, str]]:
    """For texts: the class and first words of the first training texts of each class."""
    table = []
    for label in range(data.classes or 0):
        name = data.names[label] if data.names else str(label)
        for at in first_of_class(data.train.y, label, rows):
            tokens = [int(token) for token in data.train.x[at][:words] if token]
            table.append((name, " ".join(data.words[token] for token in tokens)))
    return table


def first_of_class(y: torch.Tensor, label: int, most: int) -> list[int]:
    return [int(i) for i in (y == label).nonzero()[:most, 0]]


def row_of(x: torch.Tensor, chosen: list[int], columns: int) -> np.ndarray:
    """The chosen images side by side, with a light frame around each."""
    images = x[torch.tensor(chosen, dtype=torch.int64)].numpy()
    images = images.transpose(0, 2, 3, 1) if images.ndim == 4 else images
    paper = 0 if images.ndim == 3 else 255
    frame = [(0, columns - len(images)), (1, 1), (1, 1), (0, 0)][: images.ndim]
    return np.concatenate(list(np.pad(images, frame, constant_values=paper)), axis=1)


def draw_plan(rows: Sequence[Row] | Sequence[RecordRow], path: Path, title: str) -> Path:
    """A line for each number of clients per round, or of records per batch; at 1 the noise is as
    long as the signal."""
    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    every: list[Row | RecordRow] = list(rows)
    what = "per round" if isinstance(every[0], Row) else "per batch"
    for style, (size, group) in enumerate(groupby(every, key=lambda row: row[0])):
        points = [(row.rounds, row.noise) for row in group]
        axes.plot(*zip(*points, strict=True), label=f"{size:,} {what}", **line_style(style))
    axes.axhline(1, color="#3d4852", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_axes(axes, "rounds", "noise of a round, against the signal", title)
    add_legend(figure, axes)
    return save_figure(figure, path)
