"""All matplotlib figures; only this package imports matplotlib."""

from tunefree.plots.style import COLOURS as COLOURS
from tunefree.plots.style import add_legend as add_legend
from tunefree.plots.style import draw_line as draw_line
from tunefree.plots.style import label_axes as label_axes
from tunefree.plots.style import line_style as line_style
from tunefree.plots.style import new_figure as new_figure
from tunefree.plots.style import save_figure as save_figure
