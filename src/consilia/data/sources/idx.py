"""IDX files, the format of LeCun's MNIST: one file of images, one of labels, plain or packed with gzip.

Source: LeCun, Cortes, Burges, The MNIST database, "File formats": big-endian magic number (0, 0, type, dimensions), one
32-bit size a dimension, then the values; type 8 is unsigned bytes.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import DataError, Problem
from consilia.data.sources.faults import Faults
from consilia.data.sources.images import Classes, check_images, check_labels, image_table
from consilia.data.sources.opening import open_binary
from consilia.data.table import Table

_UNSIGNED_BYTE: Final = 8
_PIECE: Final = 16 * 2**20


def read_idx(images: Path, labels: Path, classes: Classes = None) -> Table:
    """Read images in [-1, 1], shape (n, 1, h, w), and their labels; no row is marked as a test row.

    Args:
        images: The file of images.
        labels: The file of labels.
        classes: Names of the classes 0, 1, ...; without them their number is the largest label's and one more.

    Raises:
        DataError: With the faults of both files.
    """
    images, labels = Path(images), Path(labels)
    image_faults, label_faults = Faults(f"data file {str(images)!r}"), Faults(f"data file {str(labels)!r}")
    pixels = _read(images, 3, image_faults)
    numbers = _read(labels, 1, label_faults)
    problems: list[Problem] = [*image_faults.problems(), *label_faults.problems()]
    if pixels is not None and numbers is not None:
        check_images(pixels, "images", image_faults)
        check_labels(numbers, len(pixels), "labels", label_faults, classes)
        problems = [*image_faults.problems(), *label_faults.problems()]
    if problems or pixels is None or numbers is None:
        raise DataError(problems)
    return image_table([(pixels, numbers)], None, images.name, image_faults, classes)


def _read(path: Path, dimensions: int, faults: Faults) -> NDArray[np.uint8] | None:
    needs = f"an IDX file of unsigned bytes with {dimensions} dimension{'s' if dimensions > 1 else ''}"
    try:
        with open_binary(path, faults) as stream:
            head = stream.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
                faults.add(needs, "another beginning", "Are images and labels the right way round?")
                return None
            shape = struct.unpack(f">{dimensions}I", head[4:])
            size = math.prod(shape)
            body = _at_most(stream, size + 1)  # one byte more than announced: too long is as wrong as too short
    except DataError:
        return None  # its words are in `faults`; the other file shall be looked at, too
    if len(body) != size:
        got = f"{'more' if len(body) > size else 'fewer'} than its header announces"
        faults.add(f"{size} values of shape {shape}", got, "Copy the file again")
        return None
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _at_most(stream: BinaryIO, size: int) -> bytes:
    # Piece by piece: a damaged header may announce more than any memory holds.
    pieces: list[bytes] = []
    while size > 0 and (piece := stream.read(min(size, _PIECE))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
