"""The table: parts that belong together, copies, and a fingerprint that every change moves."""

from dataclasses import replace

import numpy as np
import pytest

from consilia.core.errors import DataError
from consilia.data.table import Table


def table() -> Table:
    return Table(
        features=np.arange(12, dtype=np.float32).reshape(4, 3),
        labels=np.array([0, 1, 1, 0]),
        classes=("no", "yes"),
        ids=np.array(["a", "b", "c", "d"]),
        sites=np.array(["X", "X", "Y", "Y"]),
        patients=np.array(["p", "p", "q", "r"]),
        official_test=np.array([False, False, True, True]),
        name="made",
        columns=("u", "v", "w"),
    )


def test_take_keeps_order_and_copies() -> None:
    whole = table()
    part = whole.take(np.array([3, 1]))
    assert len(part) == 2
    assert part.input_shape == (3,)
    assert part.features.tolist() == [[9, 10, 11], [3, 4, 5]]
    assert part.labels.tolist() == [0, 1]
    assert part.ids.tolist() == ["d", "b"]
    assert part.sites is not None
    assert part.sites.tolist() == ["Y", "X"]
    assert part.patients is not None
    assert part.patients.tolist() == ["r", "p"]
    assert part.official_test is not None
    assert part.official_test.tolist() == [True, False]
    part.features[:] = 0
    assert whole.features[3, 0] == 9


def test_take_nothing() -> None:
    assert len(table().take(np.empty(0, dtype=np.int64))) == 0


def test_the_fingerprint_is_of_the_content_alone() -> None:
    one = table()
    assert one.fingerprint() == table().fingerprint()
    assert replace(one, name="other", notes=("said",)).fingerprint() == one.fingerprint()
    # A pinned value: the same rows must be known again on another machine and by a later version.
    assert one.fingerprint() == "800ed4e4fe189ad489fc64ca961abbc6e51d4d367a6fe3147013fec56f53cf64"


def test_every_change_moves_the_fingerprint() -> None:
    one = table()
    seen = {one.fingerprint(), one.take(np.array([1, 0, 2, 3])).fingerprint(), one.take(np.arange(3)).fingerprint()}
    features = one.features.copy()
    features[2, 1] += 1
    changed = [
        replace(one, features=features),
        replace(one, features=one.features.reshape(4, 1, 3)),
        replace(one, labels=np.array([0, 1, 1, 1])),
        replace(one, classes=("no", "maybe")),
        replace(one, ids=np.array(["a", "b", "c", "e"])),
        replace(one, sites=None),
        replace(one, patients=one.sites, sites=one.patients),
        replace(one, official_test=None),
    ]
    seen |= {other.fingerprint() for other in changed}
    assert len(seen) == 3 + len(changed)


def test_parts_that_do_not_belong_together_are_all_told() -> None:
    with pytest.raises(DataError) as caught:
        Table(
            features=np.zeros((3, 2)),  # type: ignore[arg-type]
            labels=np.zeros(2, dtype=np.int32),
            classes=("no", "yes"),
            ids=np.array(["a", "b", "c"]),
            sites=np.array(["X"]),
            patients=None,
            official_test=None,
            name="made",
            columns=("u",),
        )
    assert len(caught.value.problems) == 5
