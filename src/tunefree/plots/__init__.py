"""All matplotlib figures; only this package imports matplotlib."""

from tunefree.plots.style import (
    COLOURS,
    add_legend,
    draw_line,
    label_axes,
    line_style,
    new_figure,
    save_figure,
)

__all__ = [
    "COLOURS",
    "add_legend",
    "draw_line",
    "label_axes",
    "line_style",
    "new_figure",
    "save_figure",
]
