"""How figures are drawn: matplotlib's object interface, vector output, colours that follow the page's theme.

A figure is made with stand-in colours; in the markup each becomes a CSS variable, so that the same figure serves light, dark
and print. Texts stay texts: they can be read aloud, searched and copied.
"""

import html
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from consilia.report.markup import Html, tag, trusted

# Stand-ins: nearly black, unlike each other, and nothing that matplotlib uses by itself.
INK, SOFT, LINE, ACCENT, BAD, PAPER = "#010101", "#010102", "#010103", "#010104", "#010105", "#010106"
SERIES = tuple(f"#0102{index:02x}" for index in range(1, 9))
DASHES: tuple[object, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_VARIABLES = {INK: "ink", SOFT: "soft", LINE: "line", ACCENT: "accent", BAD: "bad", PAPER: "paper"} | {
    color: f"s{index}" for index, color in enumerate(SERIES, 1)
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.linewidth": 0.8,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "path.simplify": True,
}
FULL, HALF = 9.6, 4.7


def canvas(
    width: float, height: float, *, left: float = 0.55, right: float = 0.12, bottom: float = 0.5, top: float = 0.12
) -> tuple[Figure, Axes]:
    """Return an empty figure and its axes, in the house's style.

    All lengths are inches, margins included: a fixed frame keeps texts at one size on the page.
    """
    figure, (axes,) = panels(1, width, height, left=left, right=right, bottom=bottom, top=top)
    return figure, axes


def panels(
    count: int, width: float, height: float, *, left: float, right: float, bottom: float, top: float, gap: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with axes side by side, `gap` inches apart."""
    own = (width - left - right - (count - 1) * gap) / count
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        found = [
            figure.add_axes(
                ((left + place * (own + gap)) / width, bottom / height, own / width, 1 - (top + bottom) / height)
            )
            for place in range(count)
        ]
        for axes in found:
            axes.tick_params(length=0, pad=5)
            axes.margins(x=0.01)
    return figure, found


def to_svg(figure: Figure, *, name: str, title: str, description: str) -> Html:
    """Return the figure as an inline SVG with its alternative text.

    Args:
        figure: The finished figure.
        name: Unique on the page; ids inside derive from it.
        title: What the figure shows.
        description: What there is to see, for readers who cannot see it.
    """
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):  # the same records give the same page
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    markup = buffer.getvalue()
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<g id=\"[^\"]*\"", "<g", markup)  # groups of two figures share names; nothing refers to them
    markup = (
        re.sub(r"\s(xmlns:xlink|version|width|height)=\"[^\"]*\"", "", markup[: markup.index(">")])
        + markup[markup.index(">") :]
    )
    markup = markup.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1).replace("xlink:href", "href")
    markup = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", markup, flags=re.S)
    for color, variable in _VARIABLES.items():
        markup = markup.replace(color, f"var(--{variable})")
    markup = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", markup)
    head = (
        f'<svg role="img" aria-labelledby="{name}-t {name}-d"'
        f"{markup[4 : markup.index('>')]}>"
        f'<title id="{name}-t">{html.escape(title)}</title><desc id="{name}-d">{html.escape(description)}</desc>'
    )
    return tag("div", trusted(head + markup[markup.index(">") + 1 :].strip()), class_="drawing")


def standalone(drawing: Html, style: str) -> str:
    """Return a drawing as the text of an SVG file, in the light colours of the page's style sheet, on paper."""
    svg = drawing[drawing.index("<svg") : drawing.rindex("</svg>") + len("</svg>")]
    colours = style[style.index(":root {") : style.index("}") + 1]
    head, body = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return f"{head}<style>{colours} text {{ font-family: var(--sans); }}</style>{paper}{body}\n"


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], x: float, *, gap: float = 0.058) -> None:
    """Write each line's name at its right end, moved apart where they would meet.

    Args:
        axes: With final limits.
        ends: (last value, name, colour) of each line.
        x: Where the lines end.
        gap: Least distance of two names, as a share of the axes' height.
    """
    axes.get_ylim()  # makes matplotlib settle the limits that the transform below depends on
    to_axes = axes.transData + axes.transAxes.inverted()
    places = sorted((float(to_axes.transform((x, value))[1]), name, color) for value, name, color in ends)
    heights: list[float] = []
    for wanted, _, _ in places:
        heights.append(max(wanted, heights[-1] + gap) if heights else max(wanted, 0.0))
    if heights and heights[-1] > 1.0:  # pushed out at the top: push back down
        heights[-1] = 1.0
        for index in range(len(heights) - 2, -1, -1):
            heights[index] = min(heights[index], heights[index + 1] - gap)
    for (_, name, color), height in zip(places, heights, strict=True):
        axes.text(1.015, height, name, transform=axes.transAxes, color=color, va="center", ha="left", clip_on=False)
