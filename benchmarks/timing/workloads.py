"""What is trained: 1000 sites of 50 rows, batches of 10, one local epoch a round, in two sizes of model.

Settings of the published simulation benchmark (pfl-research, arXiv 2404.06430, CIFAR10 IID: 1000 users x 50 samples, batch
10, one epoch, learning rate 0.1, 2-conv CNN of 1.6 M weights). Rows are random numbers: only time is measured.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import consilia
from consilia.plan.schema import Plan

ROWS, BATCH, RATE = 50, 10, 0.1

_PLAN = """
[run]
name = "{name}"
seed = 7
[data]
source = "npz"
path = "{name}.npz"
classes = {classes}
split = "hash"
test_fraction = 0.0
[sites]
population = "nobody"
partition = "iid"
count = {sites}
{counts}
[model]
name = "{model}"
[training]
algorithm = "fedavg"
rounds = {rounds}
local_epochs = 1
batch_size = {batch}
learning_rate = {rate}
{training}
[aggregation]
selection = "count"
count = {cohort}
[privacy]
{privacy}
[evaluation]
metrics = "hidden"
"""
_RECORD = 'unit = "record"\nnoise = "site"\nnoise_multiplier = 1.0\nclip_norm = 1.0\ndelta = 1e-5\ndelta_reason = "a benchmark"'


@dataclass(frozen=True)
class Workload:
    """One thing to train.

    Attributes:
        name: Of the plan and its file.
        model: As the plan names it.
        image: Shape of one row, (height, width) or (height, width, channels); the file holds bytes.
        classes: Number of classes.
        sites: How many take part.
        cohort: How many are asked a round.
        private: Record-level DP with noise at the site, so that ledgers are kept.
    """

    name: str
    model: str
    image: tuple[int, ...]
    classes: int
    sites: int
    cohort: int
    private: bool = False

    def plan(self, folder: Path, rounds: int) -> Plan:
        """Write the rows (once) and the plan into a folder, and load the plan."""
        rows = folder / f"{self.name}.npz"
        if not rows.exists():
            rng = np.random.default_rng(3)
            count = self.sites * ROWS
            labels = rng.integers(0, self.classes, count)
            np.savez(
                rows,
                x_train=rng.integers(0, 256, (count, *self.image), dtype=np.uint8), y_train=labels,
                x_test=np.empty((0, *self.image), np.uint8), y_test=np.empty(0, np.int64),
            )  # fmt: skip
        text = _PLAN.format(
            classes=[str(number) for number in range(self.classes)], name=self.name, sites=self.sites,
            model=self.model, rounds=rounds, rate=RATE, cohort=self.cohort, batch=BATCH,
            counts='counts = "public"' if self.private else "", training="", privacy=_RECORD if self.private else "",
        )  # fmt: skip
        place = folder / f"{self.name}.toml"
        place.write_text(text)
        return consilia.load(place)

    def sized(self, sites: int, cohort: int) -> "Workload":
        """Return the same work among other numbers of sites."""
        return replace(self, sites=sites, cohort=cohort)


LINEAR = Workload("linear", "logistic", (4, 4), 2, sites=1000, cohort=50)
CNN = Workload("cnn", "benchmarks.timing.cnn:two_convolutions", (32, 32, 3), 10, sites=1000, cohort=10)
LEDGER = Workload("ledger", "logistic", (4, 4), 2, sites=5, cohort=5, private=True)
