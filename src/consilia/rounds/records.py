"""One round as plain values: what the progress bar, the report and the diagnosis read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from consilia.core.canonical import Json
from consilia.rounds import claims

HIDDEN = "hidden"


@dataclass
class RoundRecord:
    """What happened in a round; see docs/reference for each field."""

    round: int
    status: str = "counted"
    reason: str | None = None
    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    staleness: dict[str, int] | None = None
    accuracy: float | None = None
    loss: float | None = None
    accuracy_mean_over_sites: float | None = None
    accuracy_variance: float | None = None
    worst_site: str | None = None
    worst_accuracy: float | None = None
    per_site: dict[str, Json] = field(default_factory=dict)
    train_loss: float | None = None
    update_norms: dict[str, float] | str = HIDDEN
    cosine: dict[str, Json] | str = HIDDEN
    aggregate_norm: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    epsilon_spent: float | None = None
    epsilon_budget: float | None = None
    transcript: dict[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        """Return plain values."""
        return {part.name: getattr(self, part.name) for part in fields(self)}  # shallow: nobody changes a record

    def add_scores(self, scores: Mapping[str, Mapping[str, object]], sites: list[str]) -> None:
        """Fill in the global and per-site metrics from what sites released."""
        summary = summarise(scores)
        self.accuracy, self.loss = summary.accuracy, summary.loss
        self.accuracy_mean_over_sites, self.accuracy_variance = summary.mean, summary.variance
        self.worst_site, self.worst_accuracy = summary.worst
        self.per_site = per_site(scores, sites)

    def add_totals(self, rows: float, right: float, loss: float | None) -> None:
        """Fill in the global metrics from sums over all sites, where no single site's may be known."""
        if rows > 0:
            self.accuracy = min(max(right / rows, 0.0), 1.0)
            self.loss = None if loss is None else loss / rows


@dataclass(frozen=True)
class Summary:
    """Metrics over all sites that released some."""

    accuracy: float | None
    loss: float | None
    mean: float | None
    variance: float | None
    worst: tuple[str | None, float | None]


def summarise(scores: Mapping[str, Mapping[str, object]]) -> Summary:
    """Return accuracy over all rows, its mean and variance over sites, and the worst site.

    A site's score counts only if it is a number: a site that sends rubbish drops out of the average, nothing else.
    """
    rows: list[tuple[str, float, float, float | None]] = []
    for site in sorted(scores):
        n, accuracy = claims.rows(scores[site].get("n")), claims.number(scores[site].get("accuracy"))
        if n is not None and accuracy is not None and 0 <= accuracy <= 1:
            rows.append((site, n, accuracy, claims.number(scores[site].get("loss"))))
    if not rows:
        return Summary(None, None, None, None, (None, None))
    total = sum(n for _, n, _, _ in rows)
    accuracies = np.array([accuracy for _, _, accuracy, _ in rows])
    losses = [n * loss for _, n, _, loss in rows if loss is not None]
    worst = min(rows, key=lambda row: row[2])
    return Summary(
        accuracy=sum(n * accuracy for _, n, accuracy, _ in rows) / total,
        loss=sum(losses) / total if len(losses) == len(rows) else None,
        mean=float(accuracies.mean()),
        variance=float(accuracies.var()),
        worst=(worst[0], worst[2]),
    )


def per_site(scores: Mapping[str, Mapping[str, object]], sites: list[str]) -> dict[str, Json]:
    """Return {site: {"n", "accuracy", "loss"} or "hidden"} for every site of the run."""
    table: dict[str, Json] = {}
    for site in sites:
        score = scores.get(site)
        table[site] = (
            HIDDEN if score is None else {key: claims.number(score.get(key)) for key in ("n", "accuracy", "loss")}
        )
        if isinstance(entry := table[site], dict) and entry["n"] is not None:
            entry["n"] = int(entry["n"])
    return table
