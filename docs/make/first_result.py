"""Draw docs/images/first-result.png from two finished runs, the private one of `make run` and the one without noise.

consilia run examples/plans/heart.toml --out runs/heart
consilia run examples/plans/heart-open.toml --out runs/heart-open
python docs/make/first_result.py runs/heart runs/heart-open
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

import consilia

PICTURE = Path(__file__).resolve().parents[1] / "images" / "first-result.png"
INK, SOFT, LINE, PRIVATE, OPEN, SPENT = "#1f2933", "#66717d", "#dde2e7", "#0f6e84", "#b3bcc5", "#c8763a"
STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9.5,
    "axes.edgecolor": LINE, "axes.labelcolor": SOFT, "text.color": INK, "xtick.color": LINE, "ytick.color": LINE,
    "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.6,
}  # fmt: skip


def draw(private: consilia.RunResult, opened: consilia.RunResult) -> Figure:
    """Return the figure: accuracy and epsilon by round, and the resulting model's accuracy at each site."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.0), facecolor="white")
        grid = figure.add_gridspec(
            2, 2, width_ratios=(1.35, 1), height_ratios=(2.1, 1), left=0.055, right=0.972, bottom=0.115, top=0.875,
            wspace=0.42, hspace=0.28,
        )  # fmt: skip
        accuracy = figure.add_subplot(grid[0, 0])
        _accuracy(accuracy, private, opened)
        _epsilon(figure.add_subplot(grid[1, 0], sharex=accuracy), private)
        _sites(figure.add_subplot(grid[:, 1]), private, opened)
    return figure


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=9)


def _accuracy(axes: Axes, private: consilia.RunResult, opened: consilia.RunResult) -> None:
    rounds = [record["round"] for record in private.records]
    level, reached = opened.summary["accuracy"], private.summary["accuracy"]
    axes.axhline(level, color=OPEN, linewidth=1.6)
    axes.plot(rounds, [record["accuracy"] for record in private.records], color=PRIVATE, linewidth=2.2)
    axes.plot([rounds[-1]], [reached], "o", color=PRIVATE, markersize=6, clip_on=False, zorder=5)
    _title(axes, "Accuracy on held-out patients")
    axes.set_ylim(0.3, 0.9)
    axes.set_yticks([0.3, 0.5, 0.7, 0.9])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.grid(axis="y")
    axes.tick_params(length=0, labelbottom=False)
    axes.set_xlim(0, 1.01 * rounds[-1])
    axes.text(0.6, level + 0.012, f"without noise {level:.1%}", color=SOFT, va="bottom")
    axes.annotate(
        f"resulting model {reached:.1%}", (rounds[-1], reached), (0.985 * rounds[-1], reached - 0.17), color=PRIVATE,
        ha="right", fontweight="bold", arrowprops={"arrowstyle": "-", "color": PRIVATE, "linewidth": 0.9, "shrinkB": 5},
    )  # fmt: skip


def _epsilon(axes: Axes, private: consilia.RunResult) -> None:
    rounds = [0, *(record["round"] for record in private.records)]
    spent = [0.0, *(record["epsilon_spent"] for record in private.records)]
    budget = private.summary["epsilon"]
    axes.fill_between(rounds, spent, color=SPENT, alpha=0.16, linewidth=0)
    axes.plot(rounds, spent, color=SPENT, linewidth=2.2)
    axes.axhline(budget, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(0.6, budget + 0.06, f"budget {budget:.2g}", color=SOFT, va="bottom")
    axes.set_ylim(0, 1.4 * budget)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.grid(axis="y")
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    axes.set_xlabel("round")
    axes.text(0.985 * rounds[-1], 0.14, "epsilon spent", color=SPENT, ha="right", fontweight="bold")


def _sites(axes: Axes, private: consilia.RunResult, opened: consilia.RunResult) -> None:
    scores: dict[str, Any] = private.summary["per_site"]
    others: dict[str, Any] = opened.summary["per_site"]
    names = sorted(scores, key=lambda site: -scores[site]["n"])
    for place, site in enumerate(reversed(names)):
        value, other = scores[site]["accuracy"], others[site]["accuracy"]
        axes.barh(place + 0.17, value, height=0.36, color=PRIVATE)
        axes.barh(place - 0.2, other, height=0.26, color=OPEN)
        axes.text(value - 0.02, place + 0.17, f"{value:.1%}", va="center", ha="right", color="white", fontweight="bold")
        axes.text(other - 0.02, place - 0.2, f"{other:.1%}", va="center", ha="right", color=INK, fontsize=8)
    axes.text(0.02, len(names) - 1 + 0.17, "epsilon 1", va="center", color="white")
    axes.text(0.02, len(names) - 1 - 0.2, "without noise", va="center", color=INK, fontsize=8)
    labels = [f"{site}\n{scores[site]['n']} patients" for site in reversed(names)]
    axes.set_yticks(range(len(names)), labels, color=INK)
    axes.set_xlim(0, 1.0)
    axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.grid(axis="x")
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    _title(axes, "Resulting model at each hospital")


if __name__ == "__main__":
    private_run, open_run = (consilia.resume(folder) for folder in sys.argv[1:])  # finished: only read
    draw(private_run, open_run).savefig(PICTURE, dpi=170)
    print(f"{PICTURE}, {PICTURE.stat().st_size // 1000} kB")
