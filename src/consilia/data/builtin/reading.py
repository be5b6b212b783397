"""Reading the package's own files: trusted, so nothing is checked here but what a test cannot guarantee."""

import csv
import gzip
import io
from collections.abc import Iterator
from importlib import resources

from consilia.core.errors import DataError


def read_columns(file_name: str) -> dict[str, tuple[str, ...]]:
    """Return the file's columns as text, by name.

    Raises:
        DataError: If the installed package lacks the file or it is damaged.
    """
    try:
        packed = resources.files("consilia.data.builtin").joinpath(file_name).read_bytes()
        text = gzip.decompress(packed).decode()
    except (OSError, EOFError, ValueError) as error:
        raise DataError.of(
            f"built-in table {file_name!r}",
            needs="its file inside the installed package",
            got=type(error).__name__,
            hint="Install consilia again",
        ) from error
    rows: Iterator[list[str]] = csv.reader(io.StringIO(text, newline=""))
    header = next(rows)
    return dict(zip(header, zip(*rows, strict=True), strict=True))
