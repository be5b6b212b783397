"""Images in .npz: both layouts, the scale, and every way an archive can be wrong."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consilia.core.errors import DataError
from consilia.data.sources.npz import read_npz

IMAGES = np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5)
IMAGES[0, 0, 0], IMAGES[0, 0, 1] = 0, 255
LABELS = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)


def plain(**changes: object) -> dict[str, NDArray[np.generic]]:
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:2], "y_test": LABELS[:2], **changes}
    return {name: np.asarray(value) for name, value in arrays.items() if value is not None}


def write(tmp_path: Path, arrays: dict[str, NDArray[np.generic]]) -> Path:
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_the_plain_layout(tmp_path: Path) -> None:
    table = read_npz(write(tmp_path, plain()))
    assert table.features.shape == (8, 1, 4, 5)
    assert table.features.dtype == np.float32
    assert table.features[0, 0, 0, 0] == -1.0
    assert table.features[0, 0, 0, 1] == 1.0
    expected = (IMAGES.astype(np.float64) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(table.features[:6, 0], expected, atol=1e-6)
    assert table.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert table.classes == ("0", "1", "2")
    assert table.official_test is not None
    assert np.flatnonzero(table.official_test).tolist() == [6, 7]


def test_classes_are_named_by_the_plan_or_counted(tmp_path: Path) -> None:
    path = write(tmp_path, plain())
    assert read_npz(path, ("a", "b", "c", "d")).classes == ("a", "b", "c", "d")  # nobody has the last: still four
    with pytest.raises(DataError, match="y_train from 0 to 1; got others"):
        read_npz(path, ("a", "b"))


def test_medmnist_counts_validation_rows_as_training(tmp_path: Path) -> None:
    colour = np.stack([IMAGES, IMAGES, 255 - IMAGES], axis=3)
    parts = {"train": slice(0, 3), "val": slice(3, 5), "test": slice(5, 6)}
    arrays = {f"{part}_images": colour[rows] for part, rows in parts.items()}
    arrays |= {f"{part}_labels": LABELS[rows, None] for part, rows in parts.items()}
    table = read_npz(write(tmp_path, arrays))  # type: ignore[arg-type]
    assert table.features.shape == (6, 3, 4, 5)
    np.testing.assert_allclose(table.features[:, 0], -table.features[:, 2], atol=1e-6)
    assert table.official_test is not None
    assert np.flatnonzero(table.official_test).tolist() == [5]
    assert table.notes == ("validation rows count as training rows",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_test": None}, "needs an array 'x_test'"),
        ({"x_train": IMAGES.astype(np.float32)}, "needs x_train as uint8"),
        ({"x_train": IMAGES.reshape(6, 20)}, "needs x_train as uint8 of shape"),
        ({"x_train": IMAGES[:, :0]}, "needs x_train as uint8 of shape"),
        ({"y_train": LABELS[:5]}, r"needs y_train as integers of shape \(6,\)"),
        ({"y_train": LABELS.astype(np.float64)}, "needs y_train as integers"),
        ({"y_train": np.array(list("abcabc"))}, "needs y_train as integers"),
        ({"y_train": LABELS.astype(np.int64) - 1}, "needs y_train from 0 to 999"),
        ({"y_train": LABELS.astype(np.int64) * 10**9}, "needs y_train from 0 to 999"),
        ({"y_train": LABELS * 0, "y_test": LABELS[:2] * 0}, "got one class"),
        ({"x_test": IMAGES[:2, :3]}, "needs images of one shape"),
        ({"x_train": np.array([object()] * 6)}, "needs an .npz archive of plain arrays"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_npz(write(tmp_path, plain(**changes)))


def test_all_faults_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, plain(x_train=IMAGES.astype(np.int64), y_test=LABELS[:1]))
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert len(caught.value.problems) == 2


def test_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    for content in (b"not a zip", b"PK\x03\x04 but no more", b""):
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_npz(path)
    with path.open("wb") as stream:
        np.save(stream, IMAGES)
    with pytest.raises(DataError, match="got a single array"):
        read_npz(path)
    with pytest.raises(DataError, match="needs an existing file"):
        read_npz(tmp_path / "absent.npz")


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255), cut=st.booleans())
def test_damage_gives_a_table_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, place: float, byte: int, cut: bool
) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **plain())  # type: ignore[arg-type]
    raw = bytearray(buffer.getvalue())
    at = int(place * len(raw))
    raw[at] ^= byte
    path = tmp_path_factory.mktemp("fuzz") / "images.npz"
    path.write_bytes(raw[:at] if cut else raw)
    try:
        read_npz(path)
    except DataError as error:
        assert error.problems  # noqa: PT017  (either outcome is right)
