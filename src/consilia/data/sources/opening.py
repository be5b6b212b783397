"""Opening a file that may be absent, a folder, unreadable, empty or packed with gzip."""

import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from consilia.data.sources.faults import Faults


@contextmanager
def open_binary(path: Path, faults: Faults) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; a name ending in .gz is unpacked on the way.

    Raises:
        DataError: If there is no readable, non-empty file, or reading it fails on the way.
    """
    _look(path, faults)
    try:
        with cast("BinaryIO", gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as stream:
            yield stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        got = f"damaged data ({type(error).__name__})"
        faults.add("a whole gzip file", got, "Copy it again, or unpack it")
        raise faults.stop() from error
    except OSError as error:
        got = error.strerror or type(error).__name__
        faults.add("a readable file", got, "Check its permissions and the disk")
        raise faults.stop() from error


def _look(path: Path, faults: Faults) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        faults.add("an existing file", "none at this path", "Check the path; it is relative to the plan file")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        got = getattr(error, "strerror", None) or type(error).__name__
        faults.add("a readable file", got, "Check the path and its permissions")
    else:
        # Opening a pipe or device could wait for ever.
        if stat.S_ISDIR(status.st_mode):
            faults.add("a file", "a directory", "Name the file inside it")
        elif not stat.S_ISREG(status.st_mode):
            faults.add("a regular file", "a pipe, socket or device", "Copy the data into a file")
        elif status.st_size == 0:
            faults.add("a file with content", "an empty file", "Export it again")
    faults.raise_if_any()
