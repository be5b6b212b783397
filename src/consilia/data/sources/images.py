"""From grey or colour images of bytes to a table; shared by the readers of npz and idx files."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from consilia.data.sources.faults import Faults
from consilia.data.table import Table

MOST_CLASSES: Final = 1000
Classes = tuple[str, ...] | None


def check_images(images: NDArray[np.generic], what: str, faults: Faults) -> bool:
    """Return whether these are images of bytes, shape (n, h, w) or (n, h, w, c); record what is wrong."""
    colour = images.ndim == 4 and images.shape[3] in (1, 3)
    if images.dtype == np.uint8 and (images.ndim == 3 or colour) and 0 not in images.shape[1:]:
        return True
    needs = f"{what} as uint8 of shape (rows, height, width) or (rows, height, width, 1 or 3)"
    faults.add(needs, f"{images.dtype} of shape {images.shape}", "Save the pixels as bytes from 0 to 255")
    return False


def check_labels(labels: NDArray[np.generic], rows: int, what: str, faults: Faults, classes: Classes) -> bool:
    """Return whether these are `rows` class numbers, shape (n,) or (n, 1); record what is wrong."""
    most = MOST_CLASSES if classes is None else len(classes)
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape not in ((rows,), (rows, 1)):
        needs = f"{what} as integers of shape ({rows},) or ({rows}, 1): one an image"
        faults.add(needs, f"{labels.dtype} of shape {labels.shape}", "Images and labels must belong together")
        return False
    if rows and not (int(labels.min()) >= 0 and int(labels.max()) < most):
        needs = f"{what} from 0 to {most - 1}"
        faults.add(needs, "others", "Number the classes from 0; data.classes names each")
        return False
    return True


def scale_pixels(images: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """Write (x / 255 - 1/2) / (1/2), in [-1, 1], with the channel before height and width.

    Args:
        images: Shape (n, h, w) or (n, h, w, c).
        out: Shape (n, c, h, w); written in place, so that no second float copy of a large file is made.
    """
    channels_first = images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)
    np.multiply(channels_first, np.float32(2 / 255), out=out, casting="unsafe")
    out -= 1.0


def image_table(
    parts: list[tuple[NDArray[np.uint8], NDArray[np.generic]]],
    official_test: NDArray[np.bool_] | None,
    name: str,
    faults: Faults,
    classes: Classes,
    notes: tuple[str, ...] = (),
) -> Table:
    """Join checked parts (images, labels) in order.

    Without a list of classes they are called by their numbers, from 0 to the largest label. Ids are row numbers, from 1.

    Raises:
        DataError: If there are no rows, images of several shapes, or one class.
    """
    shapes = sorted({images.shape[1:] for images, _ in parts})
    if len(shapes) > 1:
        faults.add("images of one shape", f"shapes {shapes}", "Resize them first")
        raise faults.stop()
    labels = np.concatenate([part.reshape(-1).astype(np.int64) for _, part in parts])
    if len(labels) == 0:
        faults.add("at least one image", "none", "Is this the right file?")
    elif len(np.unique(labels)) < 2:
        faults.add("rows of at least two classes", "one class", "There is nothing to tell apart")
    faults.raise_if_any()
    height, width = shapes[0][:2]
    channels = shapes[0][2] if len(shapes[0]) == 3 else 1
    features = np.empty((len(labels), channels, height, width), dtype=np.float32)
    at = 0
    for images, _ in parts:
        scale_pixels(images, features[at : at + len(images)])
        at += len(images)
    return Table(
        features=features,
        labels=labels,
        classes=classes or tuple(str(k) for k in range(int(labels.max()) + 1)),
        ids=np.arange(1, len(labels) + 1).astype(np.str_),
        sites=None,
        patients=None,
        official_test=official_test,
        name=name,
        notes=notes,
    )
