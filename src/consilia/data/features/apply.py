"""From a table's rows to the features that the model is given."""

from dataclasses import replace
from typing import Final, Literal

import numpy as np

from consilia.core.errors import DataError, Problem
from consilia.data.features import scattering
from consilia.data.features.normalise import normalise_groups
from consilia.data.table import Table

Features = Literal["raw", "scattering"]
Normalise = Literal["none", "group"]
_GROUPS: Final = 27  # groups of one image channel's 81 paths


def apply(table: Table, features: Features, normalise: Normalise) -> Table:
    """Return the table with its features computed: a fixed, public function of each row.

    The result keeps the fingerprint of the rows that it was computed from: the ledger names data, not their features.

    Args:
        table: Rows as their source gives them.
        features: raw: as they are. scattering: wavelet scattering of images.
        normalise: none; group: each record's groups of channels to mean 0 and variance 1 (3 scattering paths a group;
            each channel of a raw image).

    Raises:
        DataError: If the rows are not images, or images too small.
    """
    if features == "raw" and normalise == "none":
        return table
    problems = _misfits(
        table, f'data.features = "{features}"' if features != "raw" else f'data.normalise = "{normalise}"'
    )
    if problems:
        raise DataError(problems)
    groups = table.input_shape[0]
    if features == "scattering":
        values, groups = scattering.scatter(table.features), groups * _GROUPS
    else:
        values = np.array(table.features, order="C")  # the source's own array is not written to
    if normalise == "group":
        normalise_groups(values, groups)
    return replace(table, features=values, origin=table.fingerprint())


def _misfits(table: Table, setting: str) -> list[Problem]:
    shape, who = table.input_shape, f"plan key {setting}"
    if len(shape) != 3:
        return [Problem(who, "images", f"rows of shape {shape} in table {table.name!r}", "Remove the key")]
    if "scattering" in setting and min(shape[1:]) < scattering.SMALLEST:
        needs = f"images of at least {scattering.SMALLEST} pixels a side"
        return [Problem(who, needs, f"{shape[1]} x {shape[2]}", 'Use data.features = "raw"')]
    return []
