"""IDX: LeCun's format, plain and packed, and files that are not what they say."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from consilia.core.errors import DataError
from consilia.data.sources.idx import read_idx

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([2, 0, 1], dtype=np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(tmp_path: Path, images: bytes, labels: bytes, suffix: str = "") -> tuple[Path, Path]:
    paths = tmp_path / f"images-idx3-ubyte{suffix}", tmp_path / f"labels-idx1-ubyte{suffix}"
    for path, content in zip(paths, (images, labels), strict=True):
        path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return paths


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_images_and_labels(tmp_path: Path, suffix: str) -> None:
    table = read_idx(*write(tmp_path, idx(IMAGES), idx(LABELS), suffix))
    np.testing.assert_allclose(table.features[:, 0], (IMAGES / 255 - 0.5) / 0.5, atol=1e-6)
    assert table.features.shape == (3, 1, 4, 5)
    assert table.labels.tolist() == [2, 0, 1]
    assert table.classes == ("0", "1", "2")
    assert table.official_test is None
    assert read_idx(*write(tmp_path, idx(IMAGES), idx(LABELS), suffix), ("a", "b", "c", "d")).classes[3] == "d"
    with pytest.raises(DataError, match="labels from 0 to 1; got others"):
        read_idx(*write(tmp_path, idx(IMAGES), idx(LABELS), suffix), ("a", "b"))


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (idx(LABELS), idx(IMAGES), "the right way round"),
        (idx(IMAGES)[:-1], idx(LABELS), "fewer than its header announces"),
        (idx(IMAGES) + b"x", idx(LABELS), "more than its header announces"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, idx(LABELS), "fewer than its header announces"),
        (b"\0\0", idx(LABELS), "another beginning"),
        (b"", idx(LABELS), "got an empty file"),
        (idx(IMAGES), idx(LABELS[:2]), "one an image"),
        (idx(IMAGES), idx(LABELS * 0), "got one class"),
        (idx(IMAGES[:0]), idx(LABELS[:0]), "needs at least one image"),
        (idx(IMAGES[:, :0]), idx(LABELS), "needs images as uint8 of shape"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, images: bytes, labels: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_idx(*write(tmp_path, images, labels))


def test_faults_of_both_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_idx(tmp_path / "absent-images", tmp_path / "absent-labels")
    assert len(caught.value.problems) == 2


def test_damaged_gzip(tmp_path: Path) -> None:
    images, labels = write(tmp_path, idx(IMAGES), idx(LABELS), ".gz")
    images.write_bytes(images.read_bytes()[:-9])
    with pytest.raises(DataError, match="needs a whole gzip file"):
        read_idx(images, labels)
