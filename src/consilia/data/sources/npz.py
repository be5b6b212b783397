"""Images in numpy's .npz: the layout of MNIST copies (x_train, y_train, ...) or of MedMNIST (train_images, ...)."""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from consilia.data.sources.faults import Faults
from consilia.data.sources.images import Classes, check_images, check_labels, image_table
from consilia.data.sources.opening import open_binary
from consilia.data.table import Table

_PLAIN: Final = (("x_train", "y_train"), ("x_test", "y_test"))
_MEDMNIST: Final = (
    ("train_images", "train_labels"),
    ("val_images", "val_labels"),
    ("test_images", "test_labels"),
)

# What numpy, zipfile and zlib raise on damaged, encrypted or absurdly large archives. ValueError also stands for
# arrays of Python objects, which only pickle could read.
_UNREADABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    MemoryError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read_npz(path: Path, classes: Classes = None) -> Table:
    """Read images in [-1, 1], shape (n, c, h, w); the test part is marked as the official test rows.

    MedMNIST's validation rows count as training rows. Nothing in the file is ever unpickled.

    Args:
        path: The file.
        classes: Names of the classes 0, 1, ...; without them their number is the largest label's and one more.

    Raises:
        DataError: With every fault of the file.
    """
    path = Path(path)
    faults = Faults(f"data file {str(path)!r}")
    try:
        with open_binary(path, faults) as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                faults.add("an .npz archive", "a single array", "Save images and labels with numpy.savez")
                raise faults.stop()
            return _table(archive, path.name, faults, classes)
    except _UNREADABLE as error:
        got = f"something else ({type(error).__name__})"
        faults.add("an .npz archive of plain arrays", got, "Save images and labels with numpy.savez")
        raise faults.stop() from error


def _table(archive: Mapping[str, NDArray[np.generic]], name: str, faults: Faults, classes: Classes) -> Table:
    layout = _MEDMNIST if "train_images" in archive else _PLAIN
    for pair in layout:
        for key in pair:
            if key not in archive:
                hint = "Layouts: x_train y_train x_test y_test, or MedMNIST's train_images train_labels ..."
                faults.add(f"an array {key!r}", f"{len(archive)} others", hint)
    faults.raise_if_any()
    parts: list[tuple[NDArray[np.uint8], NDArray[np.generic]]] = []
    test: list[NDArray[np.bool_]] = []
    for images_key, labels_key in layout:
        images, labels = archive[images_key], archive[labels_key]
        sound = check_images(images, images_key, faults)
        if sound and check_labels(labels, len(images), labels_key, faults, classes):
            parts.append((images.view(np.uint8), labels))
            test.append(np.full(len(images), "test" in images_key))
    faults.raise_if_any()
    notes = ("validation rows count as training rows",) if layout is _MEDMNIST else ()
    return image_table(parts, np.concatenate(test), name, faults, classes, notes)
