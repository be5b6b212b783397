"""One figure of every MNIST curve: what is published as a ceiling, and what the runs in `results` reach."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import mnist_prior, mnist_private, mnist_scattering
from benchmarks.study import ROOT, Json, column, read
from benchmarks.tables import mean

PLACE = ROOT / "benchmarks" / "images" / mnist_private.FIGURE
# Tramer and Boneh (2021), Differentially private learning needs better features: epsilon, percent.
_BEST = {"CNN, best published": (2.93, 98.1), "scattering + linear, best published": (3.0, 98.7)}


def draw(cnn: Json, prior: Json | None, scattering: Json | None, place: Path) -> None:
    """Write the figure as SVG; the same results give the same file."""
    with mpl.rc_context({"svg.hashsalt": "mnist", "svg.fonttype": "none", "font.size": 9.5}):
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        axes = figure.add_subplot()
        plain = 100 * mean(column(cnn["cases"][0], "accuracy")).value
        axes.axhline(plain, color="0.6", linewidth=0.8)
        axes.text(0.1, plain + 1, f"plain training, {plain:.1f} %", color="0.4", va="bottom")
        published = [(float(e), mnist_private.ceiling(e, plain)) for e in ("0.1", "1", "3")]
        axes.plot(*zip(*published, strict=True), "--", color="tab:red", marker="s", label='published as a "ceiling"')
        for name, result, color in (
            ("CNN, random initial weights", cnn, "tab:blue"),
            (mnist_prior.LABEL, prior, "tab:purple"),
            ("scattering + linear", scattering, "tab:green"),
        ):
            points = _curve(result) if result else []
            if points:
                x, y, half = zip(*points, strict=True)
                axes.errorbar(x, y, half, color=color, marker="o", capsize=3, label=name)
        for (name, (at, best)), color in zip(_BEST.items(), ("tab:blue", "tab:green"), strict=True):
            axes.plot(
                [at], [best], linestyle="", marker="*", markersize=11, color=color, label=name, markeredgecolor="k"
            )
        axes.set_xscale("log")
        axes.set_xticks([0.1, 0.5, 1, 3], ["0.1", "0.5", "1", "3"])
        axes.minorticks_off()
        axes.set_ylim(0, 109)
        axes.set_xlabel("epsilon (delta 1e-5, one record added or removed)")
        axes.set_ylabel("accuracy on the 10,000 test images, %")
        axes.legend(loc="lower right", frameon=False)
        place.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(place, metadata={"Date": None})


def _curve(result: Json) -> list[tuple[float, float, float]]:
    found = []
    for case in result["cases"]:
        if case["labels"]["epsilon"] != "none":
            score = mean(column(case, "accuracy"))
            found.append((float(case["labels"]["epsilon"]), 100 * score.value, 100 * score.half))
    return sorted(found)


def write() -> None:
    """Write the figure from the kept results, once there is a curve."""
    cnn = read(mnist_private.STUDY.name)
    if cnn is not None:
        draw(cnn, read(mnist_prior.STUDY.name), read(mnist_scattering.STUDY.name), PLACE)
