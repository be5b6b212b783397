"""What a site knows of itself in a run whose coordinator learns sums only: a file of its own, one JSON line an answer."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from consilia.core.canonical import Json
from consilia.core.errors import StoreError


class OwnNumbers:
    """Appends to a file that only its owner may read; nothing of it is ever sent.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, numbers: Mapping[str, Json]) -> None:
        """Append a line. A kill may lose the last ones: they are for the site's own eyes and guarantee nothing.

        Raises:
            StoreError: If the file cannot be written.
        """
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(numbers, ensure_ascii=False) + "\n")
        except OSError as error:
            got = error.strerror or "an error"
            raise StoreError.of(f"file {self.path}", needs="room and permission to be written", got=got,
                                hint="Make room or change the permissions") from None  # fmt: skip
