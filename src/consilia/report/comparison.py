"""One plan under several protections, side by side: what the server sees in words, a figure, and a page of its own."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from consilia.plan.facts import Facts
from consilia.report.drawing import ACCENT, FULL, INK, LINE, SOFT, panels, standalone, to_svg
from consilia.report.markup import Html, join, tag, trusted
from consilia.report.numbers import bound, plain, size
from consilia.report.sections import table

Rows = Sequence[Mapping[str, Any]]
HEAD = ("", "Accuracy, %", "Epsilon", "Processor, ms a round", "Time, ms a round", "Up, a site and round",
        "Down, a site and round", "To begin with, s")  # fmt: skip
NOTES = (
    "Every row is a real run of the same plan on the same rows, split and first model, in one process; the order of the runs "
    "of a seed is drawn. Times and bytes are medians over the rounds after the first, those that nobody scored.",
    "Processor: this process's, all sites and the server together. Time: on the clock, waiting for the disk included. To begin "
    "with: processor seconds before the second round beyond those of a later one; keys and evidence, where a mode has any.",
    "The rows under a secure sum are without noise, apart from \u201csecure sum + DP\u201d: with it, Paillier and threshold RLWE "
    "would reach the same accuracy and epsilon, since all three add up the same integers.",
)  # fmt: skip


def sees(facts: Facts) -> str:
    """Return in words what the server of a run sees of single sites."""
    secure, noised = facts["secure"], facts["unit"] != "none"
    if secure is None:
        return "each site's update" + (", which carries noise of its own" if noised else " as it is")
    many, few = secure["cohort"], secure["threshold"]
    carries = ", which carries the noise" if noised else ""
    match secure["mode"]:
        case "masks":
            return f"only the sum of {many} updates{carries}; more only with the help of {few} sites"
        case "rlwe":
            return f"only sums that {few} of {many} sites open together{carries}"
        case "paillier":
            return f"only sums that a site opens{carries}; with the help of any one site each update"
    return "what the measured code lets out; that code sees each update"


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the numbers of a row that ran, as `HEAD` names them."""
    score = "none" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f}"
    spread = f" \u00b1 {100 * row['spread']:.1f}" if row["spread"] is not None else ""
    return (
        row["title"], score + spread, bound(row["epsilon"], 3), _figures(1000 * row["cpu"]), _figures(1000 * row["wall"]),
        size(row["up"]), size(row["down"]), _figures(row["setup"]),
    )  # fmt: skip


def _figures(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def ran(document: Mapping[str, Any]) -> Rows:
    """Return the rows that ran."""
    return [row for row in document["rows"] if "cpu" in row]


def figure(document: Mapping[str, Any]) -> Html:
    """Accuracy, processor time and bytes of each row that ran, side by side."""
    rows = ran(document)
    figure, axes = panels(3, FULL, 0.36 * len(rows) + 1.1, left=1.35, right=0.35, bottom=0.5, top=0.5, gap=0.45)
    places = range(len(rows) - 1, -1, -1)
    for panel, title in zip(axes, ("accuracy", "processor time a round", "bytes a site and round, up"), strict=True):
        panel.set_title(title, loc="left", fontsize=9.5, color=SOFT, pad=10)
        panel.set_ylim(-0.6, len(rows) - 0.4)
        panel.set_yticks(list(places), [row["title"] if panel is axes[0] else "" for row in rows], color=INK)
        panel.grid(visible=False)
        panel.grid(visible=True, axis="x", color=LINE, linewidth=0.5)
        panel.spines["left"].set_visible(False)
    _accuracies(axes[0], rows, places)
    _costs(axes[1], [1000 * row["cpu"] for row in rows], places, lambda value: f"{_figures(value)} ms")
    _costs(axes[2], [row["up"] for row in rows], places, size)
    told = "; ".join(f"{row['title']}: {', '.join(cells(row)[1:6])}" for row in rows)
    return to_svg(figure, name="protections", title="One plan under each protection", description=told)


def _accuracies(axes: Axes, rows: Rows, places: Sequence[int]) -> None:
    for row, place in zip(rows, places, strict=True):
        known = [100 * value for value in row["accuracies"] if value is not None]
        private = row["epsilon"] is not None
        axes.plot(known, [place] * len(known), "o", color=SOFT, alpha=0.45, markersize=3.5, markeredgewidth=0)
        if known:
            axes.plot(
                [100 * row["accuracy"]],
                [place],
                "D" if private else "o",
                color=ACCENT if private else INK,
                markersize=6.5,
            )
    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    if any(row["epsilon"] is not None for row in rows):
        axes.set_xlabel("diamond: has an epsilon; small: a run")


def _costs(axes: Axes, values: Sequence[float], places: Sequence[int], shown: Callable[[float], str]) -> None:
    least, most = min(values), max(values)
    low, high = least / 2, most * (2 * most / least) ** 0.45  # room for the last number
    axes.hlines(list(places), low, values, color=LINE, linewidth=1.2)
    axes.plot(values, list(places), "o", color=ACCENT, markersize=6.5)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value).replace(".0 ", " ")))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for value, place in zip(values, places, strict=True):
        axes.annotate(shown(value), (value, place), (7, 0), textcoords="offset points", va="center", color=INK)
    axes.set_xlabel("log scale")


def style() -> str:
    """Return the reports' style sheet."""
    return (files("consilia.report") / "style.css").read_text(encoding="utf-8")


def svg(document: Mapping[str, Any]) -> str:
    """Return the figure as the text of an SVG file."""
    return standalone(figure(document), style())


def page(document: Mapping[str, Any]) -> str:
    """Return a self-contained page: figure, table, what the server sees, what did not run."""
    rows = ran(document)
    seen = [(row["title"], _against(row), row["sees"]) for row in rows]
    absent = [(row["title"], row["reason"]) for row in document["rows"] if row["reason"]]
    title = f"{document['plan']}: one plan under each protection"
    body = tag(
        "main",
        tag("header", tag("p", "Consilia \u00b7 comparison", class_="over"), tag("h1", document["plan"]),
            tag("p", f"One plan under each protection; {runs(document)}. For public or synthetic rows: nothing was charged.",
                class_="note")),
        tag("section", tag("h2", "Side by side"), tag("figure", figure(document)), table(HEAD, [cells(row) for row in rows]),
            *(tag("p", note, class_="note") for note in NOTES)),
        tag("section", tag("h2", "What the server sees"),
            table(("", "Epsilon, and against whom", "The server sees"), seen, numeric=())),
        tag("section", tag("h2", "Did not run"), table(("", "Because"), absent, numeric=())) if absent else Html(""),
    )  # fmt: skip
    head = tag(
        "head",
        trusted('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        trusted('<meta name="color-scheme" content="light dark">'),
        tag("title", title), tag("style", trusted(style())),
    )  # fmt: skip
    return "<!doctype html>\n" + join(tag("html", head, tag("body", body), lang="en")) + "\n"


def _against(row: Mapping[str, Any]) -> str:
    if row["epsilon"] is None:
        return "none"
    return f"{bound(row['epsilon'], 3)} at delta {bound(row['delta'])}, against {row['against']}"


def runs(document: Mapping[str, Any]) -> str:
    """Return "4 sites, 40 rounds, 3 runs a row (run.seed 1 to 3)"."""
    row, seeds = ran(document)[0], document["seeds"]
    span = f"run.seed {seeds[0]}" + (f" to {seeds[-1]}" if len(seeds) > 1 else "")
    return f"{plain(row['sites'])} sites, {plain(row['rounds'])} rounds, {len(seeds)} run{'s' * (len(seeds) > 1)} a row ({span})"
