"""Rows by patient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import DataError
from consilia.core.randomness import SharedSeed
from consilia.data.partition import assign
from consilia.data.patients import Patients
from consilia.data.table import Table


def table(patients: list[str] | None) -> Table:
    n = len(patients) if patients is not None else 3
    return Table(
        features=np.arange(n, dtype=np.float32)[:, None], labels=np.arange(n) % 2, classes=("a", "b"),
        ids=np.array([f"r{i}" for i in range(n)], dtype=np.str_), sites=None,
        patients=None if patients is None else np.array(patients, dtype=np.str_), official_test=None, name="t",
    )  # fmt: skip


names = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=30)


@given(names, st.data())
def test_chosen_patients_bring_all_their_rows_side_by_side(patients: list[str], data: st.DataObject) -> None:
    found = Patients.of(table(patients))
    assert found.count == len(set(patients))
    assert sorted(found.order) == list(range(len(patients)))
    chosen = np.array(data.draw(st.lists(st.integers(0, found.count - 1), unique=True)), dtype=np.int64)
    rows = found.rows(chosen)
    whose = [sorted(set(patients))[number] for number in found.number[rows]]
    expected = [
        name for pick in chosen for name in [sorted(set(patients))[pick]] * patients.count(sorted(set(patients))[pick])
    ]
    assert whose == expected
    assert [patients[found.order[row]] for row in rows] == expected


def test_a_table_without_patients_is_refused() -> None:
    with pytest.raises(DataError, match="the patient of each row"):
        Patients.of(table(None))


def test_no_patients_no_rows() -> None:
    assert Patients.of(table([])).count == 0


@given(names.filter(lambda patients: len(set(patients)) >= 3), st.sampled_from(["iid", "quantity-skew"]))
def test_simulated_sites_never_share_a_patient(patients: list[str], kind: str) -> None:
    places = assign(
        table(patients), kind, count=3, alpha=1.0 if kind == "quantity-skew" else None, seed=SharedSeed.of(1)  # type: ignore[arg-type]
    )  # fmt: skip
    rows = np.concatenate(list(places.values()))
    assert sorted(rows) == list(range(len(patients)))
    owners = [{patients[row] for row in index} for index in places.values()]
    assert sum(map(len, owners)) == len(set(patients))
