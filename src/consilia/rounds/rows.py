"""From the plan's data section to each site's rows: read, divide, hold out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from consilia.core.errors import DataError, PlanError, Problem
from consilia.core.randomness import SharedSeed
from consilia.data.builtin import adult, heart
from consilia.data.checks import check_table
from consilia.data.features.apply import apply
from consilia.data.partition import assign
from consilia.data.sources.csv_file import CsvSpec, read_csv
from consilia.data.sources.idx import read_idx
from consilia.data.sources.npz import read_npz
from consilia.data.split import keep_first, split
from consilia.data.table import Table
from consilia.plan.faults import nearest
from consilia.plan.schema import DataSection, Plan

BUILT_IN = ("heart", "adult")


@dataclass(frozen=True)
class SiteRows:
    """One site's rows: those it trains on and those it is judged by."""

    train: Table
    test: Table


def read_table(data: DataSection, known_sites: tuple[str, ...] | None, folder: Path) -> Table:
    """Read the plan's source.

    Raises:
        PlanError: If the section lacks what the source needs.
        DataError: If a file cannot be used, with every fault in it.
    """
    if data.source == "heart":
        return heart.load()
    if data.source == "adult":
        return adult.load()
    missing = [key for key in _needed(data) if getattr(data, key) is None]
    if missing:
        raise PlanError(
            Problem(f"plan key data.{key}", f"a value for source {data.source}", "nothing", "Name it in the plan")
            for key in missing
        )
    path, classes = folder / str(data.path), tuple(data.classes) if data.classes else None
    if data.source == "npz":
        table = read_npz(path, classes)
    elif data.source == "idx":
        table = read_idx(path, folder / str(data.labels_path), classes)
    else:
        table = read_csv(path, CsvSpec(
            label=str(data.label), classes=classes, numeric=data.numeric,
            categories={column: tuple(values) for column, values in data.categories.items()}, missing=data.missing,
            id_column=data.id_column, site_column=data.site_column, patient_column=data.patient_column,
            known_sites=known_sites,
        ))  # fmt: skip
    problems = check_table(table)
    if problems:
        raise DataError(problems)
    return table


def _needed(data: DataSection) -> tuple[str, ...]:
    return {"csv": ("path", "label"), "npz": ("path",), "idx": ("path", "labels_path")}[data.source]


def site_rows(plan: Plan, folder: Path) -> dict[str, SiteRows]:
    """Return every simulated site's rows.

    Rows that a source sets aside for testing are divided among sites on their own, so that each site's held-out rows are
    official ones; otherwise each site holds out its own. Features are computed last, site by site: a row is much larger then.

    Args:
        plan: The plan.
        folder: Where relative paths start.
    """
    sites, data = plan.sites, plan.data
    seed = SharedSeed.of(plan.run.seed)
    table = read_table(data, tuple(sites.only) if sites.only else None, folder)

    _require_known(plan, table)

    def featured(part: Table) -> Table:
        return apply(part, data.features, data.normalise)

    def divide(part: Table, label: str) -> dict[str, Table]:
        places = assign(
            part, sites.partition, count=sites.count, alpha=sites.alpha, sizes=sites.sizes, one_label_sites=sites.one_label_sites,
            seed=seed.derive("partition", label),
        )  # fmt: skip
        return {site: part.take(index) for site, index in places.items() if not sites.only or site in sites.only}

    if data.split == "official":
        train_index, test_index = split(table, "official", data.test_fraction, seed)
        train_index = keep_first(train_index, data.train_rows, seed)
        train = divide(table.take(train_index), "train")
        test = _share_out(table.take(test_index), sorted(train), seed) if sites.partition != "natural" else divide(
            table.take(test_index), "test"
        )  # fmt: skip
        return {
            site: SiteRows(featured(train[site]), featured(test.get(site, train[site].take(np.empty(0, np.int64)))))
            for site in sorted(train)
        }
    return {site: _hold_out(plan, site, part, featured) for site, part in sorted(divide(table, "train").items())}


def own_rows(plan: Plan, site: str, file: Path | None) -> SiteRows:
    """Return the rows of one real site: all of its own file, or its own part of a built-in table.

    Args:
        plan: The plan; where it says the data lie is not used.
        site: The site's name.
        file: The site's own file (of images, for idx: the labels lie beside it as the plan names them); None for built-in
            tables.

    Raises:
        PlanError: If the plan divides rows among simulated sites, or leaves names of classes to be read off the rows.
        DataError: If the file cannot be used, with every fault in it.
    """
    if plan.data.source in BUILT_IN:
        rows = site_rows(plan, Path())
        if site not in rows:
            raise DataError.of(f"site {site}", needs="a part of the table in its name", got=f"parts of {', '.join(rows)}",
                               hint="Name the site as the table does, or give it a file of its own")  # fmt: skip
        return rows[site]
    problems = []
    if plan.sites.partition != "natural":
        problems.append(Problem("plan key sites.partition", '"natural"', f'"{plan.sites.partition}"',
                                "Real sites hold their own rows: nothing is divided"))  # fmt: skip
    if plan.data.classes is None:
        problems.append(Problem("plan key data.classes", "the values of the label, or names for them, in order", "nothing",
                                "Sites must agree on them, and none may tell what its rows hold"))  # fmt: skip
    if file is None:
        problems.append(Problem(f"site {site}", "a file of its own for this data set", "none",
                                "Name it under [data.NAME] in site.toml"))  # fmt: skip
    if problems or file is None:
        raise PlanError(problems)
    data = plan.data.model_copy(update={"path": file.name, "site_column": None})
    if data.labels_path is not None:
        data = data.model_copy(update={"labels_path": Path(data.labels_path).name})
    table = read_table(data, None, file.resolve().parent)
    return _hold_out(plan, site, table, lambda part: apply(part, data.features, data.normalise))


def _hold_out(plan: Plan, site: str, part: Table, featured: Callable[[Table], Table]) -> SiteRows:
    """Divide one site's rows into those it trains on and those it is judged by."""
    data, seed = plan.data, SharedSeed.of(plan.run.seed)
    # A hash divides alike at all sites: a patient at two of them is on one side at both.
    sides = seed.derive("split") if data.split == "hash" else seed.derive("split", site)
    train_index, test_index = split(part, data.split, data.test_fraction, sides)
    train_index = keep_first(train_index, data.train_rows, seed.derive("train rows", site))
    return SiteRows(featured(part.take(train_index)), featured(part.take(test_index)))


def _require_known(plan: Plan, table: Table) -> None:
    """Refuse sites to take part that the table does not have.

    Raises:
        PlanError: Naming each of them.
    """
    only = plan.sites.only
    if not only or plan.sites.partition != "natural" or table.sites is None:
        return
    known = sorted({str(site) for site in table.sites})
    problems = []
    for site in only:
        if site not in known:
            guess = nearest(site, known)
            shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
            hint = f"Did you mean {guess!r}?" if guess else f"Sites there: {shown}"
            problems.append(Problem("plan key sites.only", "sites that the data have", repr(site), hint))
    if problems:
        raise PlanError(problems)


def _share_out(table: Table, sites: list[str], seed: SharedSeed) -> dict[str, Table]:
    # Held-out rows of a common test set: dealt evenly, whatever skew the training rows were given.
    order = seed.derive("partition", "test").generator().permutation(len(table))
    return {
        site: table.take(np.sort(part)) for site, part in zip(sites, np.array_split(order, len(sites)), strict=True)
    }
