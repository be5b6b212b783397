"""The report's figures. Each takes records and returns an inline SVG, or None where nothing was released to draw."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from consilia.report import series
from consilia.report.drawing import (
    ACCENT,
    BAD,
    DASHES,
    FULL,
    HALF,
    INK,
    LINE,
    PAPER,
    SERIES,
    SOFT,
    canvas,
    label_ends,
    to_svg,
)  # fmt: skip
from consilia.report.markup import Html
from consilia.report.numbers import bound, plain, share, size

Records = Sequence[Mapping[str, Any]]
MAX_LINES = 12
_NAMES = 1.2  # inches for names beside the axes
MAX_BARS = 30


def accuracy(records: Records) -> Html | None:
    """Accuracy over rounds: all held-out rows, and each site where it released its own."""
    xs, ys = series.of(records, "accuracy")
    if not ys:
        return None
    sites = series.per_site(series.thinned(records), "per_site", "accuracy")
    figure, axes = canvas(FULL, 3.6, left=0.65, right=_NAMES)
    ends = _lines(axes, sites)
    thin = series.of(series.thinned(records), "accuracy")
    axes.plot(*thin, color=INK, linewidth=2.4, zorder=5)
    _mark_skipped(axes, records)
    _rounds(axes)
    axes.yaxis.set_major_formatter(_percent())
    label_ends(axes, [(ys[-1], "all rows", INK), *ends], xs[-1])
    best = max(range(len(ys)), key=ys.__getitem__)
    first, last = f"{share(ys[0])} after round {xs[0]:.0f}", f"{share(ys[-1])} after round {xs[-1]:.0f}"
    told = f"{first}, {last}, best {share(ys[best])} after round {xs[best]:.0f}."
    return to_svg(figure, name="accuracy", title="Accuracy on held-out rows by round", description=told)


def site_bars(scores: Mapping[str, Mapping[str, Any]], overall: float | None) -> Html | None:
    """Accuracy of the resulting model at each site, the lowest first."""
    rows = [
        (value, site) for site, score in scores.items() if (value := series.number(score.get("accuracy"))) is not None
    ]
    if not rows:
        return None
    rows.sort(key=lambda row: (-row[0], row[1]))
    told = "; ".join(f"{site} {share(value)}" for value, site in rows[:MAX_BARS])
    if len(rows) > MAX_BARS:
        figure, axes = canvas(HALF, 3.0)
        axes.plot(range(1, len(rows) + 1), [value for value, _ in rows][::-1], color=ACCENT)
        axes.set_xlabel("sites, lowest first")
        axes.yaxis.set_major_formatter(_percent())
        told = f"{len(rows)} sites from {share(rows[-1][0])} to {share(rows[0][0])}."
    else:
        figure, axes = canvas(HALF, 0.36 * len(rows) + 0.66, left=_NAMES, right=0.25, bottom=0.36, top=0.3)
        for place, (value, _) in enumerate(rows):
            axes.barh(place, value, height=0.62, color=ACCENT, alpha=0.85)
            inside = value > 0.2  # at the foot of the bar, where the line of all rows cannot cross it
            axes.text(
                0.02 if inside else value + 0.02, place, share(value), va="center", color=PAPER if inside else INK
            )
        axes.set_yticks(range(len(rows)), [_short(site) for _, site in rows], color=INK)
        axes.grid(visible=False)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(_percent())
        axes.spines["left"].set_visible(False)
        if overall is not None:
            axes.axvline(overall, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
            axes.text(overall, 1.02, f"all rows {share(overall)}", transform=axes.get_xaxis_transform(),
                      ha="right" if overall > 0.5 else "left", va="bottom", color=INK)  # fmt: skip
    return to_svg(figure, name="sites", title="Accuracy of the resulting model by site", description=told)


def spread(records: Records) -> Html | None:
    """Standard deviation of accuracy over sites, by round."""
    thin = series.thinned(records)
    xs, variances = series.of(thin, "accuracy_variance")
    if len(xs) < 2:
        return None
    ys = [100 * value**0.5 for value in variances]
    figure, axes = canvas(HALF, 2.6)
    axes.plot(xs, ys, color=ACCENT)
    _rounds(axes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("percentage points")
    told = f"{ys[0]:.1f} points after round {xs[0]:.0f}, {ys[-1]:.1f} after round {xs[-1]:.0f}."
    return to_svg(figure, name="spread", title="Standard deviation of accuracy over sites, by round", description=told)


def epsilon(records: Records, budget: float | None) -> Html | None:
    """Epsilon spent after each round, against the budget of the whole schedule."""
    xs, ys = series.of(series.thinned(records), "epsilon_spent")
    if not ys:
        return None
    figure, axes = canvas(HALF, 2.6)
    axes.step([0.0, *xs], [0.0, *ys], where="post", color=ACCENT)
    axes.fill_between([0.0, *xs], [0.0, *ys], step="post", color=ACCENT, alpha=0.14, linewidth=0)
    top = max(ys)
    if budget is not None:
        axes.axhline(budget, color=BAD, linewidth=1.2, linestyle=(0, (4, 2)))
        axes.text(0.0, budget, f"budget {bound(budget)}", color=BAD, va="bottom", ha="left")
        top = max(top, budget)
    axes.set_ylim(0, 1.18 * top if top else 1)
    _rounds(axes)
    told = f"Epsilon {bound(ys[-1])} spent after round {xs[-1]:.0f}, of a budget of {bound(budget)}."
    return to_svg(figure, name="epsilon", title="Epsilon spent by round", description=told)


def norms(records: Records) -> Html | None:
    """Length of each site's update as the coordinator saw it, and of the step it took."""
    thin = series.thinned(records)
    sites, (xs, ys) = series.per_site(thin, "update_norms", None), series.of(thin, "aggregate_norm")
    if not sites and not ys:
        return None
    figure, axes = canvas(HALF, 2.6, right=_NAMES)
    ends = _lines(axes, sites)
    if ys:
        axes.plot(xs, ys, color=INK, linewidth=2.0)
        ends.append((ys[-1], "aggregate", INK))
    values = [value for _, column in sites.values() for value in column if value > 0] + [y for y in ys if y > 0]
    if values and max(values) > 50 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    _mark_skipped(axes, records)
    _rounds(axes)
    last = max([xs[-1] if xs else 0.0, *(column[-1] for column, _ in sites.values())])
    label_ends(axes, ends, last, gap=0.085)
    told = "; ".join(f"{name} {value:.3g}" for value, name, _ in ends) + " in the last round that has them."
    return to_svg(figure, name="norms", title="l2 norm of updates by round", description=told)


def cosine_curve(records: Records) -> Html | None:
    """Mean cosine similarity of the updates of a round."""
    xs, ys = series.cosine_means(series.thinned(records))
    if not ys:
        return None
    figure, axes = canvas(HALF, 2.6)
    axes.plot(xs, ys, color=ACCENT)
    axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set_ylim(min(-0.1, min(ys) - 0.05), 1.0)
    _rounds(axes)
    told = (
        f"From {ys[0]:.2f} in round {xs[0]:.0f} to {ys[-1]:.2f} in round {xs[-1]:.0f}; "
        "1 means the sites agree, 0 that they are unrelated."
    )
    return to_svg(figure, name="cosine", title="Mean cosine similarity of updates by round", description=told)


def cosine_pairs(records: Records) -> Html | None:
    """Cosine similarity of each pair of sites in the last round that has them."""
    found = series.last_pairs(records)
    if found is None or not found[1]:
        return None
    number, pairs = found
    names = sorted({name for pair in pairs for name in pair})
    slant = 0.75 if len(names) > 5 else 0.25
    figure, axes = canvas(HALF, 0.42 * len(names) + slant, left=_NAMES, bottom=0.12 + slant)
    for row in range(1, len(names)):
        for column in range(row):
            value = pairs.get((names[column], names[row]), pairs.get((names[row], names[column])))
            if value is None:
                continue
            strength = min(1.0, abs(value))
            axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, linewidth=0,
                                     facecolor=ACCENT if value >= 0 else BAD, alpha=0.08 + 0.8 * strength))  # fmt: skip
            axes.text(column, row, f"{value:.2f}".replace("-", "\u2212"), ha="center", va="center",
                      color=PAPER if strength > 0.6 else INK)  # fmt: skip
    axes.set_xlim(-0.5, len(names) - 1.5)
    axes.set_ylim(len(names) - 0.5, 0.5)
    axes.set_xticks(range(len(names) - 1), [_short(name, max(9, 44 // len(names))) for name in names[:-1]], color=INK)
    axes.set_yticks(range(1, len(names)), [_short(name) for name in names[1:]], color=INK)
    if len(names) > 5:
        axes.tick_params(axis="x", rotation=90)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    told = "; ".join(f"{a} and {b} {value:.2f}" for (a, b), value in pairs.items())
    return to_svg(
        figure, name="pairs", title=f"Cosine similarity of pairs of sites in round {number}", description=told
    )


def traffic(records: Records) -> Html | None:
    """Bytes moved up to and with each round, both ways."""
    up, down = (series.running_total(records, key) for key in ("bytes_up", "bytes_down"))
    if not up[1]:
        return None
    figure, axes = canvas(HALF, 2.6, left=0.65, right=0.85)
    step = -(-len(up[0]) // series.MAX_POINTS)
    ends = []
    for (xs, ys), color, dash, name in ((down, ACCENT, DASHES[0], "to sites"), (up, INK, DASHES[1], "from sites")):
        axes.plot(xs[::-step][::-1], ys[::-step][::-1], color=color, linestyle=dash)
        ends.append((ys[-1], name, color))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    _rounds(axes)
    label_ends(axes, ends, up[0][-1], gap=0.085)
    told = f"{size(up[1][-1])} from sites and {size(down[1][-1])} to sites after {plain(len(up[0]))} rounds."
    return to_svg(figure, name="traffic", title="Bytes moved, running total", description=told)


def _lines(axes: Axes, sites: Mapping[str, series.Series]) -> list[tuple[float, str, str]]:
    """Draw one line a site; beyond `MAX_LINES` a faint bundle without names."""
    if len(sites) > MAX_LINES:
        for xs, ys in sites.values():
            axes.plot(xs, ys, color=SOFT, linewidth=0.6, alpha=0.35)
        return []
    ends = []
    for index, (site, (xs, ys)) in enumerate(sites.items()):
        color, dash = SERIES[index % len(SERIES)], DASHES[index % len(DASHES)]
        marker = "o" if len(xs) == 1 else None
        axes.plot(xs, ys, color=color, linestyle=dash, linewidth=1.3, marker=marker, markersize=3)
        ends.append((ys[-1], _short(site), color))
    return ends


def _mark_skipped(axes: Axes, records: Records) -> None:
    skipped = [record["round"] for record in records if record.get("status") == "skipped"]
    if skipped and len(skipped) <= series.MAX_POINTS:
        axes.plot(skipped, [0.0] * len(skipped), linestyle="none", marker=2, markersize=7, color=BAD,
                  transform=axes.get_xaxis_transform(), clip_on=False, zorder=6)  # fmt: skip


def _percent() -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{round(100 * value, 2):g} %")  # as many decimals as the ticks need


def _rounds(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("round")
    axes.spines["left"].set_color(LINE)


def _short(name: str, length: int = 14) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"
