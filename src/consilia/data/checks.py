"""What makes a table unusable, and what its holder should know before training.

Both lists are computed from the rows: they are for the site's own screen, not for the coordinator.
"""

import numpy as np

from consilia.core.errors import Problem
from consilia.data.table import Table


def check_table(table: Table) -> list[Problem]:
    """Return every fault that makes the table unusable; empty if it is sound."""
    who = f"table {table.name!r}"
    if len(table) == 0:
        return [Problem(who, "at least one row", "none", "Check the file and the rule for missing values")]
    problems: list[Problem] = []
    if 0 in table.input_shape:
        problems.append(Problem(who, "at least one feature", f"shape {table.input_shape}", "Name the columns"))
    flat = table.features.reshape(len(table), -1)
    bad = int(np.count_nonzero(~np.isfinite(flat).all(axis=1)))
    if bad:
        problems.append(Problem(who, "finite features", f"{bad} rows with NaN or infinity", "Repair the rows"))
    if len(table.classes) < 2:
        problems.append(Problem(who, "at least two classes", f"{len(table.classes)}", "Name them in data.classes"))
    if len(set(table.classes)) < len(table.classes):
        problems.append(Problem(who, "different names for the classes", "a name twice", "Rename one"))
    outside = int(np.count_nonzero((table.labels < 0) | (table.labels >= len(table.classes))))
    if outside:
        got = f"{outside} rows outside it"
        problems.append(Problem(who, f"labels from 0 to {len(table.classes) - 1}", got, "Repair the labels"))
    elif len(np.unique(table.labels)) < 2:
        problems.append(Problem(who, "rows of at least two classes", "one", "There is nothing to tell apart"))
    repeated = len(table) - len(np.unique(table.ids))
    if repeated:
        problems.append(Problem(who, "a different id for every row", f"{repeated} repeats", "Make ids unique"))
    return problems
