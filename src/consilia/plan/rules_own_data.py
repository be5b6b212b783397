"""Rules on rows of one's own under a claim: what names, counts or divides them must be public, not read off the rows."""

from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.rules_data import BUILTIN
from consilia.plan.schema import Plan


def own_data_rules(plan: Plan) -> list[Problem]:
    """Return the rules that the plan breaks where it claims privacy for data that is not built in."""
    if plan.privacy.unit == "none" or plan.data.source in BUILTIN:
        return []
    found = [*_named(plan)]
    if plan.privacy.within_site:
        found += _divided(plan)
    return found


def _named(plan: Plan) -> Iterator[Problem]:
    if plan.sites.counts is None:
        yield Problem(
            "plan key sites.counts",
            "public numbers of rows when privacy.unit is not none",
            "nothing",
            'Register an upper bound for each site, as in counts = { A = 800 }, or sites.counts = "public"',
        )
    if plan.sites.population is None:
        yield Problem(
            "plan key sites.population",
            "a name of the people when privacy.unit is not none",
            "nothing",
            'As in population = "cardiology-2024": the ledgers add up all runs on these people under it',
        )
    if plan.data.source in ("npz", "idx") and plan.data.classes is None:
        yield Problem(
            "plan key data.classes",
            "a public list of classes when privacy.unit is not none",
            "nothing",
            'Name the classes 0, 1, ... in order, as in classes = ["benign", "malignant"]: the largest label is a row\'s',
        )


def _divided(plan: Plan) -> Iterator[Problem]:
    data, claim = plan.data, f'privacy.unit = "{plan.privacy.unit}" on data that is not public'
    if data.split == "exact":
        yield Problem(
            'plan key data.split = "exact"',
            f"another split with {claim}",
            "exact",
            'Use data.split = "hash": with exact, adding one row moves others between training and test',
        )
    if data.split == "hash" and data.test_fraction > 0:
        # Without ids a row goes by its number, and adding one renumbers those behind it.
        if data.source != "csv":
            yield Problem(
                'plan key data.split = "hash"',
                f"rows with ids of their own with {claim}",
                f"{data.source} files, whose rows have only numbers",
                'Use data.split = "official" (npz), or data.test_fraction = 0',
            )
        elif data.id_column is None and data.patient_column is None:
            yield Problem(
                "plan key data.id_column",
                f"a column of ids, or data.patient_column, with {claim}",
                "nothing",
                "Name one, or set data.test_fraction = 0: by row numbers, adding one row moves others between training and test",
            )
    if data.train_rows is not None:
        yield Problem(
            "plan key data.train_rows",
            f"to be absent with {claim}",
            f"{data.train_rows}",
            "Remove it: adding one row would push another out of the first rows",
        )
