"""CPU time of a run's rounds over a bare loop's, in pairs taken in turn.

Each pair is: one round of the run, one round of the bare loop, and one more bare round as the control (the bare loop
against itself, which would be 1 without noise). Whatever else the machine does falls on all three alike.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

import consilia
from benchmarks.timing.bare import Bare
from benchmarks.timing.clock import Moment, quartiles
from benchmarks.timing.workloads import ROWS, Workload
from consilia.core.canonical import Json
from consilia.core.randomness import SharedSeed
from consilia.learning.models import build
from consilia.plan.schema import Plan
from consilia.rounds.rows import site_rows


class Beside:
    """Runs the bare loop between a run's rounds; pass it as `on_round`."""

    def __init__(
        self, plan: Plan, rows: Mapping[str, tuple[Tensor, Tensor]], shape: tuple[int, ...], classes: int
    ) -> None:
        self._seed = SharedSeed.of(plan.run.seed)
        self.bare, self.control = (Bare(
            build(plan.model.name, input_shape=shape, classes=classes, hidden=tuple(plan.model.hidden),
                  activation=plan.model.activation, seed=self._seed.derive("model").integer()), rows,
        ) for _ in range(2))  # fmt: skip
        self.product: list[Moment] = []
        self.plain: list[Moment] = []
        self.again: list[Moment] = []
        self._ended: Moment | None = None

    def __call__(self, record: Mapping[str, Json]) -> None:
        """Take the time of the round that just ended, then of two bare rounds."""
        now = Moment.now()
        number = cast("int", record["round"])
        orders = [(site, self._order(site, number)) for site in cast("list[str]", record["asked"])]
        times = []
        turns = (self.bare, self.control) if number % 2 else (self.control, self.bare)
        for loop in turns:  # whoever is second finds warmer caches: they take turns at it
            begun = Moment.now()
            loop.round(orders)
            times.append(Moment.now() - begun)
        if self._ended is not None:  # the first round also pays for what is made once
            self.product.append(now - self._ended)
            self.plain.append(times[0] if turns[0] is self.bare else times[1])
            self.again.append(times[1] if turns[0] is self.bare else times[0])
        self._ended = Moment.now()

    def _order(self, site: str, number: int) -> Tensor:
        generator = self._seed.derive("site", site).derive("batches", number).generator()
        return torch.from_numpy(generator.permutation(ROWS).astype(np.int64))


def compare(work: Workload, folder: Path, rounds: int) -> dict[str, Json]:
    """Train the workload with `consilia.run` and beside it with the bare loop.

    Args:
        work: What to train.
        folder: A fresh folder for rows, ledgers and the run.
        rounds: Pairs to take, and one round more that is not counted.
    """
    os.environ["CONSILIA_HOME"] = str(folder / "home")
    plan = work.plan(folder, rounds + 1)
    tables = {site: part.train for site, part in site_rows(plan, folder).items()}
    rows = {site: (torch.from_numpy(t.features), torch.from_numpy(t.labels)) for site, t in tables.items()}
    beside = Beside(plan, rows, next(iter(tables.values())).input_shape, work.classes)
    result = consilia.run(plan, out=folder / f"run-{work.name}", on_round=beside)
    apart = np.abs(beside.bare.vector().numpy() - result.model)
    return {
        "workload": work.name, "sites": work.sites, "sites_a_round": work.cohort, "parameters": int(result.model.size),
        "pairs": rounds,
        "ratio_cpu": _ratios(beside.product, beside.plain, "cpu"),
        "control_ratio_cpu": _ratios(beside.again, beside.plain, "cpu"),
        "ratio_wall": _ratios(beside.product, beside.plain, "wall"),
        "product_cpu_ms": quartiles([1e3 * m.cpu for m in beside.product]),
        "bare_cpu_ms": quartiles([1e3 * m.cpu for m in beside.plain]),
        "product_wall_ms": quartiles([1e3 * m.wall for m in beside.product]),
        "bare_wall_ms": quartiles([1e3 * m.wall for m in beside.plain]),
        "models_apart": float(apart.max()), "model_moved": float(np.abs(result.model).max()),
    }  # fmt: skip


def _ratios(above: list[Moment], below: list[Moment], clock: str) -> dict[str, float]:
    return quartiles([getattr(a, clock) / getattr(b, clock) for a, b in zip(above, below, strict=True)])
